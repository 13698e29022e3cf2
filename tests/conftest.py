"""Seeds: every test that draws gets its generator here, never from the date."""

from __future__ import annotations

import os

import numpy as np
import pytest

# numba's pool cannot change its size once it runs, and QuantEcon starts it
os.environ["NUMBA_NUM_THREADS"] = "1"

collect_ignore = (
    [] if os.name == "posix" else ["experiments/test_store.py", "experiments/test_sweeps.py"]
)
"""Tests that stop processes by POSIX signals, or limit what they may write."""


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20230703)
