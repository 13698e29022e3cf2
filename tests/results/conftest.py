"""One small sweep and made-up samples for all tests of results."""

from pathlib import Path

import numpy as np
import pytest

from upriver.experiments import execute
from upriver.experiments.spec import parse
from upriver.results.runs import Sample

SPEC = {
    "name": "small",
    "description": "two rivers",
    "episodes": 60,
    "seeds": {"first": 0, "count": 3},
    "environments": [
        {"name": "riverswim-4", "horizon": 12, "label": "river-4"},
        {"name": "riverswim-10", "horizon": 12, "label": "river-10", "episodes": 400},
    ],
    "agents": [
        {"agent": "ucrl-mnl", "radius": 1e-3},
        {"agent": "ucrl-mnl", "label": "greedy", "radius": 0.0},
        {"agent": "random"},
        {"agent": "optimal"},
    ],
}


def make_sample(
    returns, env="river", agent="a", setting="s", seeds=None, values=None, best=10.0
) -> Sample:
    """Return a sample of made-up returns (R, K), which are the values too unless they are given."""
    returns = np.asarray(returns, dtype=float)
    seeds = np.arange(len(returns)) if seeds is None else np.asarray(seeds)
    values = returns if values is None else np.asarray(values, dtype=float)
    return Sample(env, agent, setting, seeds, returns, values, np.full(returns.shape, best))


@pytest.fixture(scope="session")
def sweep(tmp_path_factory) -> Path:
    """A finished folder: 2 environments, 4 agents, 3 seeds."""
    folder = tmp_path_factory.mktemp("results") / "small sweep"
    outcome = execute(parse(SPEC), folder, jobs=1)
    assert outcome.complete
    return folder
