"""Data frames of columns and rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from upriver.checks import Array


def to_frame(data: Any) -> Any:
    """Return a pandas data frame of a mapping of columns, or of a list of rows."""
    import pandas as pd

    return pd.DataFrame(data)


def name_column(names: Any, numbers: Array) -> Any:
    """Return the names of an array of states or actions; the numbers where they have no names."""
    if names is None:
        return numbers
    return np.fromiter(names, object)[numbers]  # an array of tuples would be a matrix
