"""Fits of large data in parts: the same estimate, and the same bytes for any number of threads."""

import numpy as np
import pytest

import upriver as up
from upriver import kernels
from upriver.mnl.choices import PARTS


def situations(rng, n=4000, d=6):
    sizes = rng.integers(2, 6, n)
    groups = np.repeat(np.arange(n), sizes)
    x = rng.normal(size=(len(groups), d))
    noise = rng.gumbel(size=len(groups)) + x @ rng.normal(size=d)
    chosen = np.zeros(len(groups), bool)
    starts = np.cumsum(sizes) - sizes
    for first, size in zip(starts, sizes, strict=True):
        chosen[first + np.argmax(noise[first : first + size])] = True
    return x, chosen, groups


def fitted(monkeypatch, threads, fit):
    parts = []
    each = kernels.compiled.parallel_ranges
    monkeypatch.setattr("upriver.mnl.choices.CHUNK_NUMBERS", 600)
    monkeypatch.setattr(kernels, "LARGE", 0)
    monkeypatch.setattr(kernels.compiled, "thread_count", lambda: threads)
    monkeypatch.setattr(
        kernels.compiled, "parallel_ranges", lambda *x: parts.append(len(y := each(*x))) or y
    )
    model = fit()
    monkeypatch.undo()
    return model, parts


def frame(rng, n=3000):
    states = np.array(["well", "ill", "cured"])
    log = {name: states[rng.integers(0, 3, n)] for name in ("state", "next_state")}
    return log | {"action": rng.choice(["wait", "treat"], n), "age": rng.normal(size=n)}


@pytest.mark.parametrize("kind", ["rows", "products"])
def test_parts_change_nothing_and_threads_not_a_bit(kind, rng, monkeypatch):
    if kind == "rows":
        x, chosen, groups = situations(rng)

        def fit():
            return up.fit_choices(x, chosen, groups)
    else:
        pd = pytest.importorskip("pandas")
        log = pd.DataFrame(frame(rng))
        places = pd.DataFrame({"state": ["well", "ill", "cured"], "good": [2.0, 0.0, 1.0]})

        def fit():
            return up.fit_transitions("good_next + age:good_next", log, states=places).fitted

    whole = fit()
    one, _ = fitted(monkeypatch, 1, fit)
    several, parts = fitted(monkeypatch, 3, fit)
    assert max(parts) == PARTS
    assert one.theta.tobytes() == several.theta.tobytes()
    assert one.covariance.tobytes() == several.covariance.tobytes()
    np.testing.assert_allclose(one.theta, whole.theta, rtol=1e-7)
