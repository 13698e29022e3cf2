"""One run of an agent on an MDP; the only place where regret is computed."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from upriver import kernels
from upriver.agents.protocol import Agent, Episode
from upriver.checks import Array, positive_integer
from upriver.mdp import FiniteMDP, Task
from upriver.planning import Plan, check_actions, solve

if TYPE_CHECKING:
    from upriver.play.policy import Policy

CHUNK = 4096  # episodes' worth of uniforms drawn at a time


class Checkpoint(NamedTuple):
    """All that a run needs to go on exactly as if it had not stopped."""

    state: Any
    """The agent's state."""
    episodes: int
    """How many episodes have been played."""
    seed: int
    stream: Mapping[str, Any]
    """State of the agent's generator; the environment's follows from seed and episodes."""


class Run(NamedTuple):
    """K episodes of one agent. All arrays have length K."""

    returns: Array
    """Sum of rewards received in each episode."""
    values: Array
    """Exact value V^{pi_k}_1(s_{k,1}) of the policy played."""
    optimal_values: Array
    """V*_1(s_{k,1}), the best possible from where the episode began."""
    seconds: Array
    """Time that planning and learning took, environment and evaluation not counted."""
    plan: Plan
    """The last plan played."""
    state: Any
    """The agent's state after the last episode."""
    task: Task | None = None
    """The agent's view of the MDP, which knows the names of states and actions."""
    checkpoint: Checkpoint | None = None
    """Where to go on, see `simulate`."""

    def __repr__(self) -> str:
        return (
            f"Run({len(self.returns)} episodes, return {self.returns.sum():.6g}, "
            f"regret {self.regret.sum():.6g})"
        )

    @property
    def regret(self) -> Array:
        """V*_1 - V^{pi_k}_1 at the start of each episode, exact."""
        return self.optimal_values - self.values

    @property
    def policy(self) -> Policy:
        """The last policy played, to keep, save and use."""
        from upriver.play.policy import Policy

        return Policy.from_plan(self.plan, self.task)


def streams(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """(environment, agent) generators of a seed; every agent meets the same environment stream."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed is {seed!r}; it must be a whole number of at least 0")
    environment, agent = np.random.SeedSequence(int(seed)).spawn(2)
    return np.random.default_rng(environment), np.random.default_rng(agent)


def begin(
    agent: Agent, seed: int | None, resume: Checkpoint | None, draws: int
) -> tuple[Any, Checkpoint, np.random.Generator, np.random.Generator]:
    """(agent's state, where we are, environment, agent generators), from the start or later on.

    draws: how many uniforms an episode takes from the environment's generator.
    """
    if resume is None:
        environment, randomness = streams(0 if seed is None else seed)
        return agent.init(), Checkpoint(None, 0, int(seed or 0), {}), environment, randomness
    if not isinstance(resume, Checkpoint):
        raise TypeError(f"resume is a {type(resume).__name__}; it must be a run's checkpoint")
    if seed not in (None, resume.seed):
        raise ValueError(f"seed is {seed!r}; the run to resume has seed {resume.seed}")
    environment, randomness = streams(resume.seed)
    environment.bit_generator.advance(resume.episodes * draws)  # type: ignore[attr-defined]
    randomness.bit_generator.state = resume.stream
    return resume.state, resume, environment, randomness


def check_table(policy: Array, task: Task) -> None:
    """Refuse a table of another shape or kind: the kernels would read past its end."""
    shape = task.horizon, task.n_states
    if policy.shape != shape or policy.dtype.kind not in "iu":
        raise ValueError(
            f"the agent's policy is {policy.dtype} of shape {policy.shape}; "
            f"it must be whole numbers of shape {shape}"
        )


def simulate(
    mdp: FiniteMDP,
    agent: Agent,
    n_episodes: int,
    seed: int | None = None,
    resume: Checkpoint | None = None,
) -> Run:
    """Play `n_episodes` episodes; every played policy is evaluated exactly on the true MDP.

    The result depends on (mdp, agent, seed) alone, and its first episodes do not depend on how
    many follow. The seed is 0 unless given. resume: the checkpoint of an earlier run of the same
    agent; its episodes and these together are, byte for byte, one uninterrupted run.
    """
    n_episodes = positive_integer("n_episodes", n_episodes)
    task = mdp.known
    if (agent.task.n_states, agent.task.n_actions, agent.task.horizon) != (
        task.n_states, task.n_actions, task.horizon,
    ):  # fmt: skip
        raise ValueError(
            f"the agent's task has {agent.task.describe()}, the MDP has {task.describe()}; "
            "build the agent from a task of this MDP"
        )
    state, since, environment, randomness = begin(agent, seed, resume, task.horizon + 1)
    best = solve(mdp).v[0].copy()  # a view would keep all H + 1 rows alive
    horizon = task.horizon
    returns, values, optimal, seconds = np.empty((4, n_episodes))
    played: Any = None
    v = np.zeros((horizon + 1, task.n_states))
    model = task.indptr, task.successors, mdp.probability, task.reward_rows
    starts = mdp.initial_states, mdp.initial_probability
    rollout, evaluate = kernels.planning.rollout, kernels.planning.evaluate
    plan: Any = None
    for k in range(n_episodes):
        if k % CHUNK == 0:
            uniforms = environment.random((min(CHUNK, n_episodes - k), horizon + 1))
        began = perf_counter()
        plan = agent.plan(state, randomness)
        planned = perf_counter()
        policy = plan.policy
        check_table(policy, task)
        played = ~policy if played is None else played  # at first everything is new
        changed = evaluate(*model, policy, played, v)
        if changed < 0:
            check_actions("the agent's policy", policy, task.n_actions)
        if changed:
            played = policy.copy()  # an agent may write its next table into the same array
        episode = Episode(
            np.empty(horizon + 1, np.int64), np.empty(horizon, np.int64), np.empty(horizon)
        )
        returns[k] = rollout(*model, *starts, policy, uniforms[k % CHUNK], *episode)
        first = episode.states[0]
        values[k] = v[0, first]
        optimal[k] = best[first]
        resumed = perf_counter()
        state = agent.update(state, plan, episode)
        seconds[k] = perf_counter() - resumed + planned - began
    stopped = Checkpoint(
        state, since.episodes + n_episodes, since.seed, randomness.bit_generator.state
    )
    return Run(returns, values, optimal, seconds, plan, state, agent.task, stopped)
