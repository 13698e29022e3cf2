"""A decorator of the user on an agent's method is called when the agent plays."""

from functools import wraps

import upriver as up


def test_a_decorator_on_plan_is_kept():
    calls = []

    def count(plan):
        @wraps(plan)
        def counted(self, state, rng):
            calls.append(state.k)
            return plan(self, state, rng)

        return counted

    class Counted(up.agents.PSRL):
        pass

    Counted.plan = count(up.agents.PSRL.plan)
    mdp = up.envs.riverswim(n_states=6)
    up.simulate(mdp, Counted(mdp.task()), 3, seed=0)
    assert calls == [1, 2, 3]
