"""Planning by rollouts in factored problems, and values of policies by paired simulation.

At a state every action is followed by a base policy for a few steps, all on the same random
scenarios. Sequential halving keeps the better half of the actions and doubles the scenarios until
one is left. Where the base policy never meets a reward, as with a goal that is far away, rollouts
cannot tell the actions apart, and the base policy's own action is taken.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from math import ceil, log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from upriver.checks import (
    Array,
    check_function,
    check_instance,
    check_kinds,
    check_seed,
    kernel_view,
    positive_integer,
)
from upriver.display import Card, add_repr
from upriver.kernels import factored as kernels
from upriver.kernels.compiled import parallel_ranges
from upriver.mdp.factored import FactoredMDP, try_function

BASE_SCENARIOS = 20
"""Episodes on which base=None compares the actions."""
MIN_DRAWS_TO_SHARE = 10**5
"""Draws of components in a round of rollouts, about 0.2 ms, from which on threads share them."""
NEGLIGIBLE = 1e-6
"""With a discount, an episode ends where the weight of a reward has fallen below this."""


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class RolloutPolicy:
    """A policy that chooses by simulation whenever it acts; `rollout_policy` makes it.

    It is a function of the state and the step: the scenarios of a step depend on the seed alone.
    """

    problem: FactoredMDP
    """The problem that it plans with; its logits may be estimates."""
    scenarios: int = 40
    """Scenarios of the first round; 0 plays the base policy as it is."""
    depth: int = 8
    base: Any = None
    halving: bool = True
    _: KW_ONLY
    seed: int = 0

    def __post_init__(self) -> None:
        put = partial(object.__setattr__, self)
        check_instance("problem", self.problem, FactoredMDP)
        put("scenarios", positive_integer("scenarios", self.scenarios, least=0, most=10**6))
        put("depth", positive_integer("depth", self.depth, most=10**6))
        put("halving", bool(self.halving))
        check_seed(self.seed)
        if callable(self.base):
            check_function("base", self.base, "x", "h")
            last = (self.problem.horizon or 1) - 1
            calls = [(x, min(h, last)) for h, x in enumerate(self.problem.draw_states())]
            try_function("base", self.base, calls, True)
        elif self.base is not None:
            self.problem.action_names.number(self.base, "base")

    @cached_property
    def constant(self) -> int:
        """The number of the action that the base policy always takes; -1 where it is a function."""
        problem = self.problem
        if self.base is not None:
            return -1 if callable(self.base) else problem.action_names.number(self.base)
        values = [
            evaluate_by_simulation(problem, a, BASE_SCENARIOS, int(self.key)).mean
            for a in problem.actions
        ]
        return int(np.argmax(values))

    @cached_property
    def key(self) -> np.uint64:
        """The key of the scenarios, another one than that of episodes with the same seed."""
        return make_key(self.seed, 1)

    def compile_loops(self, problem: FactoredMDP) -> Any:
        """Return the loops of `kernels.factored` for a problem and the base policy."""
        base = kernels.no_base if self.constant >= 0 else kernels.compile_function(self.base)
        return kernels.compile_kernels(*problem.functions, base)

    @check_kinds
    def act(self, x: ArrayLike, h: int = 0) -> Any:
        """Return the action in state x at step h, by name where actions have names.

        Parameters
        ----------
        x : (n,) integers
        h : int
            The step, from 0; it matters where the horizon is near, and to a base that asks for it.
        """
        problem = self.problem
        h = positive_integer("h", h, least=0, most=(problem.horizon or 10**9) - 1)
        state = np.array(problem.as_states("x", [x])[0])
        return problem.action_names[self.choose(state, h, True)]

    def choose(self, x: Array, h: int, in_threads: bool) -> int:
        """Return the number of the action whose rollouts earn most, by sequential halving.

        Threads may share the scenarios of a round. Among equals the base policy's own action goes
        first, then the smallest number.
        """
        problem = self.problem
        find_candidates, run_scenarios = self.compile_loops(problem)[:2]
        rule, candidates = (problem.n_actions, self.constant), np.empty(problem.n_actions, np.int64)
        m = problem.run(find_candidates, x, h, rule, candidates)
        candidates, sums, done, more = candidates[:m], np.zeros(m), 0, self.scenarios
        n_steps = min(self.depth, (problem.horizon or 10**10) - h)
        while more and m > 1:
            returns = np.empty((more, m))
            work = partial(
                problem.run, run_scenarios, x, h, n_steps, rule, kernel_view(problem.n_values),
                problem.weight, problem.cumulative, self.key, done, candidates, returns,
            )  # fmt: skip
            is_large = more * m * n_steps * len(x) >= MIN_DRAWS_TO_SHARE
            parallel_ranges(work, more) if in_threads and is_large else work(0, more)
            sums += returns.sum(axis=0)
            done, more = done + more, done + more
            m = (m + 1) // 2 if self.halving and m > 2 else 1
            best = np.argsort(-sums, kind="stable")[:m]
            candidates, sums = candidates[best], sums[best]
        return int(candidates[0])

    def card(self) -> Card:
        facts = {"scenarios": self.scenarios, "depth": self.depth, "base": self.base}
        return Card(facts, of=self.problem.name, brief=f"rollouts of depth {self.depth}")


@check_kinds
def rollout_policy(
    problem: FactoredMDP, scenarios: int = 40, depth: int = 8, base: Any = None,
    halving: bool = True, *, seed: int = 0,
) -> RolloutPolicy:  # fmt: skip
    """Return a policy that plans by rollouts with common random numbers.

    Parameters
    ----------
    problem : FactoredMDP
        With logits.
    scenarios : int
        Of the first round, in which every action takes part. A round keeps the better half of the
        actions and doubles the scenarios; the last one compares two.
    depth : int
        Steps of a rollout, the first action included. More steps are noisier; 6 to 10 are
        enough where actions have effects soon.
    base : action, function of (x, h), or None
        What is done after the first action: one action, a policy compiled by numba, or the constant
        action that does best from the start. Where a state does not have the action, its first
        allowed action takes its place.
    halving : bool
        False gives all actions the same scenarios, in one round.
    seed : int
        Of the scenarios.
    """
    positive_integer("scenarios", scenarios)
    problem.probabilities  # noqa: B018  (raises an error where there are no logits)
    return RolloutPolicy(problem, scenarios, depth, base, halving, seed=seed)


def as_policy(problem: FactoredMDP, policy: Any) -> RolloutPolicy:
    """Return an action or a function of (x, h) as a policy that does no rollouts."""
    if not isinstance(policy, RolloutPolicy):
        if policy is None:
            raise TypeError("policy is None; it must be an action, a function, or rollouts")
        return RolloutPolicy(problem, 0, base=policy)
    for what in ("n_values", "actions", "horizon", "discount"):
        mine, true = getattr(policy.problem, what), getattr(problem, what)
        if not np.array_equal(mine, true):
            raise ValueError(f"the policy's problem has {what} {mine}, {problem.name} has {true}")
    return policy


def simulate_policy(
    problem: FactoredMDP, policy: RolloutPolicy, n_episodes: int, seed: int, record: bool = False
) -> tuple[Array, Array, Array]:
    """Play a policy in a problem; threads share the episodes, or the scenarios of a single one.

    Episodes of one seed have the same random numbers, whatever the policy.

    Returns
    -------
    states (E, T + 1, n), empty without `record`; actions (E, T); rewards (E, T)
    """
    n_steps = episode_length(problem)
    length = 1 if policy.scenarios else n_steps  # of what is played at once
    states = np.empty((n_episodes * record, n_steps + 1, problem.n_components), np.int64)
    actions, rewards = np.empty((n_episodes, n_steps), np.int64), np.empty((n_episodes, n_steps))
    play_steps, key = policy.compile_loops(problem)[2], make_key(seed, 0)

    def work(first: int, last: int) -> None:
        for e in range(first, last):
            x, a = np.array(problem.start), policy.constant
            visited = states[e] if record else np.empty((n_steps + 1, len(x)), np.int64)
            visited[0] = x
            for h in range(0, n_steps, length):
                if policy.scenarios:
                    a = policy.choose(x, h, n_episodes == 1)
                problem.run(
                    play_steps, x, h, (problem.n_actions, a), kernel_view(problem.n_values),
                    problem.cumulative, np.uint64(kernels.derive_key(key, e)), visited[h:],
                    actions[e, h : h + length], rewards[e, h : h + length],
                )  # fmt: skip

    parallel_ranges(work, n_episodes) if n_episodes > 1 else work(0, 1)
    return states, actions, rewards


def make_key(seed: int, stream: int) -> np.uint64:
    """Return the key of the random numbers of one stream of a seed, see `kernels.factored`."""
    return np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0]


def episode_length(problem: FactoredMDP) -> int:
    """Return the steps of an episode; with a discount, until what follows is negligible."""
    if problem.discount is None:
        return int(problem.horizon or 0)
    return ceil(log(NEGLIGIBLE) / log(problem.discount)) if problem.discount > 0.0 else 1


def discounted_sum(problem: FactoredMDP, rewards: Array) -> Array:
    """Return (E,) the returns of episodes with rewards (E, T)."""
    return (rewards * problem.weight ** np.arange(rewards.shape[1])).sum(axis=1)


@add_repr
class SimulatedValue(NamedTuple):
    """The value of a policy by simulation. The difference of two with one seed is paired."""

    returns: Array
    """(E,) the return of each episode."""
    seed: int
    """The seed of the episodes."""

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def standard_error(self) -> float:
        """The standard error of the mean; nan for one episode."""
        n = len(self.returns)
        return float(self.returns.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")

    def __sub__(self, other: SimulatedValue) -> SimulatedValue:
        """Return what this policy earned more, episode by episode, on common random numbers."""
        if self.seed != other.seed or len(self.returns) != len(other.returns):
            mine, its = (f"{len(x.returns)} episodes of seed {x.seed}" for x in (self, other))
            raise ValueError(f"these are {mine} and {its}; a difference needs the same ones")
        return SimulatedValue(self.returns - other.returns, self.seed)

    def card(self) -> Card:
        facts = {"mean": self.mean, "standard error": self.standard_error}
        return Card({"episodes": len(self.returns), **facts})


def evaluate_by_simulation(
    problem: FactoredMDP, policy: Any, n_episodes: Any, seed: int
) -> SimulatedValue:
    """See `planning.evaluate`."""
    n_episodes, seed = positive_integer("n_episodes", n_episodes), check_seed(seed)
    rewards = simulate_policy(problem, as_policy(problem, policy), n_episodes, seed)[2]
    return SimulatedValue(discounted_sum(problem, rewards), seed)
