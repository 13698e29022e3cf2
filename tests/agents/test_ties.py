"""Ties are broken in every state and step by themselves, whatever sweep made the plan."""

import numpy as np
import pytest

import upriver as up
from upriver.planning import optimism

TIED = {
    **{
        f"ucrl-mnl {name}": lambda task, rule=rule: up.agents.UCRLMNL(
            task, up.features.one_hot(task), radius=0.0, optimism=rule
        )
        for name, rule in optimism.OPTIMISMS.items()
    },
    "ucrl-mnl-se": lambda task: up.agents.UCRLMNLSE(task, up.features.one_hot(task)),
    "ucrl-mnl-lr": lambda task: up.agents.UCRLMNLLR(task, up.features.one_hot(task)),
    "ucrl-mnl-l1": lambda task: up.agents.UCRLMNLL1(task, up.features.one_hot(task)),
    "ucrl2": up.agents.UCRL2,
    "ucbvi": up.agents.UCBVI,
    "ucbvi-bf": up.agents.UCBVIBF,
    "ucrl-vtr": up.agents.UCRLVTR,
    "lsvi-ucb": up.agents.LSVIUCB,
    "lsvi-ucb phi": lambda task: up.agents.LSVIUCB(task, bonus=0.0, phi=np.eye(len(task.sizes))),
}


@pytest.mark.parametrize("name", TIED)
def test_ties_do_not_fall_alike(name):
    """Nothing pays and all pairs are alike, so all actions tie: the table is fair coins."""
    n = 12
    mdp = up.FiniteMDP.from_arrays(np.full((n, 2, n), 1.0 / n), np.zeros((n, 2)), 20)
    agent = TIED[name](mdp.true_task)
    tables = [agent.plan(agent.init(), np.random.default_rng(seed)).policy for seed in range(8)]
    coins = np.array(tables, float)
    last = coins[:, -1]
    assert 0.3 < last.mean() < 0.7
    assert (last.std(axis=1) > 0).all()  # not the same action in all states
    assert (last.std(axis=0) > 0).mean() > 0.9  # nor in all plans
    assert 0.3 < np.mean(last != coins[:, -2]) < 0.7  # nor at all steps
