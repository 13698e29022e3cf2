"""The feature map varphi(s, a, s') and how it is made."""

from upriver.features.automatic import FEATURES, automatic, changes
from upriver.features.features import Features
from upriver.features.layout import Layout
from upriver.features.maps import (
    OWN,
    components,
    from_function,
    one_hot,
    one_hot_indicator,
    pooled,
    recentre,
    shared,
    unpooled,
)

__all__ = [
    "FEATURES", "OWN", "Features", "Layout", "automatic", "changes", "components",
    "from_function", "one_hot", "one_hot_indicator", "pooled", "recentre", "shared",
    "unpooled",
]  # fmt: skip
