"""Seeds: every test that draws gets its generator here, never from the date."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20230703)
