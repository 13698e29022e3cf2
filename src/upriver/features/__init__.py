"""The feature map varphi(s, a, s'): how it is made, and how it is packed for the kernels."""

from upriver.features.features import Features
from upriver.features.layout import Layout
from upriver.features.maps import (
    FEATURES,
    directions,
    from_function,
    one_hot,
    one_hot_indicator,
    recentre,
    shared,
)

__all__ = [
    "FEATURES", "Features", "Layout", "directions", "from_function", "one_hot",
    "one_hot_indicator", "recentre", "shared",
]  # fmt: skip
