"""One run of an agent on an MDP; the only place where regret is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from upriver import kernels
from upriver.agents.fixed import Fixed
from upriver.agents.guard import check_agent, check_state, to_unit_scale, to_user_units, unguarded
from upriver.agents.protocol import Agent, Episode
from upriver.checks import Array, checked_seed, instance, positive_integer, shown
from upriver.display import Card, displayed, to_frame
from upriver.mdp import FiniteMDP, Task
from upriver.mdp.archive import digest, encode, fingerprints, name_of
from upriver.planning import (
    Plan,
    check_available,
    environment_structure,
    reevaluate,
    solve,
)
from upriver.play.streams import first_place, play_stream

if TYPE_CHECKING:
    from upriver.play.policy import Policy

CHUNK = 256  # episodes that one piece of memory is taken for


@displayed
class Checkpoint(NamedTuple):
    """All that a run needs to go on exactly as if it had not stopped."""

    state: Any
    """The agent's state."""
    episodes: int
    """How many episodes have been played."""
    seed: int
    stream: Mapping[str, Any]
    """State of the agent's generator; the environment's follows from seed and episodes."""
    made_for: Any = ""
    """The agent and the MDP of the run, or in a file their fingerprint; "" in files of 0.1."""
    place: int = -1
    """Of a stream: where the present plan began, which `state`, `episodes` and `stream` belong to;
    -1 for episodes."""
    ahead: int = 0
    """Of a stream: steps of the present plan that have been played."""

    def without_closures(self) -> Checkpoint:
        """What a file holds: not the agent and the MDP, but by what to know them again."""
        return self._replace(made_for=fingerprint(self.made_for))


@displayed
class Run(NamedTuple):
    """K episodes of one agent, or K steps of a stream. All arrays have length K."""

    returns: Array
    """Sum of rewards received in each episode, and the terminal value where it ended."""
    values: Array
    """Exact value V^{pi_k}_1(s_{k,1}) of the policy played. Of a stream: with a discount the value
    of the policy where it is; for the average the optimal gain less what the action loses."""
    optimal_values: Array
    """V*_1(s_{k,1}), the best possible from where the episode began. Of a stream: V*(s_t), or the
    optimal gain."""
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

    def card(self) -> Card:
        word = "steps" if self.task is not None and self.task.infinite_horizon else "episodes"
        facts: dict[str, Any] = {
            word: len(self.returns),
            "return": float(self.returns.sum()),
            "regret": float(self.regret.sum()),
            "last value": float(self.values[-1]),
            "optimal value": float(self.optimal_values[-1]),
        }
        more = "plot() draws value and regret, to_pandas() has every episode"
        return Card(facts, more=more, brief=f"{len(self.returns)} {word}")

    def to_pandas(self) -> Any:
        """A data frame with a row per episode: return, value, optimal_value, regret, seconds."""
        return to_frame({
            "episode": np.arange(1, len(self.returns) + 1),
            "return": self.returns,
            "value": self.values,
            "optimal_value": self.optimal_values,
            "regret": self.regret,
            "seconds": self.seconds,
        })  # fmt: skip

    def plot(self) -> Any:
        """A figure of the value of every policy played, and of the regret so far."""
        from upriver.display import figures

        return figures.learning({
            "value of the policy": {"played": self.values, "optimal": self.optimal_values},
            "cumulative regret": {"regret": np.cumsum(self.regret)},
        })  # fmt: skip

    @property
    def regret(self) -> Array:
        """V*_1 - V^{pi_k}_1 at the start of each episode, exact; of a stream at each step."""
        return self.optimal_values - self.values

    @property
    def policy(self) -> Policy:
        """The last policy played, to keep, save and use."""
        from upriver.play.policy import Policy

        return Policy.from_plan(self.plan, self.task)


def streams(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """(environment, agent) generators of a seed; every agent meets the same environment stream."""
    environment, agent = np.random.SeedSequence(checked_seed(seed)).spawn(2)
    return np.random.default_rng(environment), np.random.default_rng(agent)


def begin(
    agent: Agent, mdp: FiniteMDP | None, seed: int | None, resume: Checkpoint | None, draws: int
) -> tuple[Any, Checkpoint, np.random.Generator, np.random.Generator]:
    """(agent's state, where we are, environment, agent generators), from the start or later on.

    draws: how many uniforms an episode takes from the environment's generator.
    """
    if resume is None:
        environment, randomness = streams(0 if seed is None else seed)
        return agent.init(), Checkpoint(None, 0, int(seed or 0), {}), environment, randomness
    instance("resume", resume, Checkpoint)
    if seed is not None and checked_seed(seed) != resume.seed:
        raise ValueError(f"seed is {seed}; the run to resume has seed {resume.seed}")
    check_made_for(resume.made_for, (agent, mdp))
    check_state(agent, resume.state, finite=True)
    environment, randomness = streams(resume.seed)
    if isinstance(resume.episodes, bool) or not isinstance(resume.episodes, int):
        raise TypeError(f"resume.episodes is {shown(resume.episodes)}; it must be a whole number")
    environment.bit_generator.advance(resume.episodes * draws)  # type: ignore[attr-defined]
    try:
        randomness.bit_generator.state = resume.stream
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError("resume.stream is not the state of a PCG64 generator") from error
    return resume.state, resume, environment, randomness


def check_made_for(made_for: Any, now: tuple[Any, Any]) -> None:
    """Refuse to go on with another agent or another MDP than the run had."""
    known = isinstance(made_for, tuple) and len(made_for) == 2
    known = (
        known and isinstance(made_for[1], FiniteMDP | None) and not isinstance(made_for[0], type)
    )
    if (isinstance(made_for, str) and not made_for) or (
        known and all(x is y for x, y in zip(made_for, now, strict=True))
    ):
        return
    before, after = fingerprint(made_for) if known else made_for, fingerprint(now)
    if not isinstance(before, dict):
        raise TypeError("resume.made_for is not the fingerprint of an agent and an MDP")
    for what in ("agent", "mdp"):
        if before.get(what) != after[what]:
            name = "the MDP" if what == "mdp" else "the agent"
            raise ValueError(
                f"resume is a run with another {what}: {name} is not what it was when the run "
                "stopped"
            )


def fingerprint(made_for: Any) -> Any:
    """By what an agent and an MDP are known again: a digest of the inputs of each."""
    if not isinstance(made_for, tuple):
        return made_for
    agent, mdp = made_for
    parts = None
    if mdp is not None:
        parts = [mdp.true_task, mdp.probability, mdp.initial_states, mdp.initial_probability]
    arrays: dict[str, Array] = {}
    prints = {"class": name_of(type(agent))} | (fingerprints(agent) if is_dataclass(agent) else {})
    return {"agent": digest(prints, {}), "mdp": digest(encode(parts, arrays), arrays)}


def check_table(policy: Any, task: Task) -> None:
    """Refuse a table of another shape or kind: the kernels would read past its end."""
    shape = task.horizon, task.n_states
    if not isinstance(policy, np.ndarray) or policy.shape != shape or policy.dtype.kind not in "iu":
        kind = policy.dtype if isinstance(policy, np.ndarray) else type(policy).__name__
        raise ValueError(
            f"the agent's policy is {kind} of shape {np.shape(policy)}; "
            f"it must be whole numbers of shape {shape}"
        )


def check_same_problem(task: Task, known: Task) -> None:
    """Refuse an agent of another problem: sizes and names, in the same order."""
    for what in ("n_states", "n_actions", "horizon", "discount"):
        if getattr(task, what) != getattr(known, what):
            raise ValueError(
                f"the agent's task has {task.describe()}, the MDP has {known.describe()}; "
                "build the agent from a task of this MDP"
            )
    for mine, true in (
        (task.state_names, known.state_names),
        (task.action_names, known.action_names),
    ):
        if mine.numbers_in(true, "the MDP") is not None:
            i = next(i for i in range(mine.size) if mine[i] != true[i])
            raise ValueError(
                f"{mine.what} {i} is {mine[i]!r} in the agent's task and {true[i]!r} in the MDP; "
                "build the agent from a task of this MDP, with the same order of names"
            )
    extra = task.available & ~known.available
    if extra.any():
        raise ValueError(
            f"the agent's task has the pair {task.describe_pair(int(np.argmax(extra)))}, which the MDP does "
            "not have; build the agent from a task of this MDP"
        )


def simulate(
    mdp: FiniteMDP,
    agent: Agent | Policy | Plan,
    n_episodes: int | None = None,
    seed: int | None = None,
    resume: Checkpoint | None = None,
    *,
    n_steps: int | None = None,
    restart: float = 0.0,
) -> Run:
    """Play `n_episodes` episodes; every played policy is evaluated exactly on the true MDP.

    agent: an agent, or a `Policy` or `Plan` to play as it is, matched by name. An MDP without a
    last step is played as one stream of `n_steps` steps, which after each step begins anew with
    chance `restart`.

    The result depends on (mdp, agent, seed) alone, and its first episodes do not depend on how
    many follow. The seed is 0 unless given. resume: the checkpoint of an earlier run of the same
    agent; its episodes and these together are, byte for byte, one uninterrupted run.
    """
    task = instance("mdp", mdp, FiniteMDP).true_task
    player: Any = Fixed(task, cast(Any, agent)) if hasattr(agent, "on") else agent
    check_agent(player)
    check_same_problem(player.task, task)
    if task.infinite_horizon:
        return simulate_stream(mdp, player, n_episodes, seed, resume, n_steps, restart)
    if n_steps is not None or restart:
        raise ValueError(
            f"n_steps and restart are for MDPs without a last step; {mdp.name} has horizon "
            f"{mdp.horizon}, give n_episodes, or make it endless: mdp.infinite_horizon(discount)"
        )
    n_episodes = positive_integer("n_episodes", n_episodes, most=10**9)
    state, since, environment, randomness = begin(player, mdp, seed, resume, task.horizon + 1)
    make_plan, update = unguarded(player)
    best = solve(mdp).v[0].copy()  # a view would keep all H + 1 rows alive
    horizon = task.horizon
    plain = player.task.units.is_identity
    figures, seconds = np.empty((3, n_episodes)), np.empty(n_episodes)
    v = np.zeros((horizon + 1, task.n_states))
    v[-1] = mdp.terminal
    truth = environment_structure(mdp)
    play, large = kernels.episodes.play_episode, task.n_triples >= kernels.LARGE
    plan: Any = None
    policy: Any = None
    played: Any = np.empty(0)
    for k in range(n_episodes):
        row = k % CHUNK
        if row == 0:
            rows = min(CHUNK, n_episodes - k)
            uniforms = environment.random((rows, horizon + 1))
            states = np.empty((rows, horizon + 1), np.int64)
            actions, paid = np.empty((rows, horizon), np.int64), np.empty((rows, horizon))
            episodes = map(Episode, states, actions, paid)
        plan = policy = None  # large plans are not held twice
        began = perf_counter()
        plan = make_plan(state, randomness)
        planned = perf_counter()
        policy = getattr(plan, "policy", None)
        if type(policy) is not np.ndarray or policy.dtype is not played.dtype:
            check_table(policy, task)
            played = ~policy  # everything is new
        elif policy.shape != played.shape:
            check_table(policy, task)
        exists = not large or reevaluate(mdp, policy, played, v)  # on all cores
        if not exists or not play(
            truth, best, policy, played, v, uniforms[row], states[row], actions[row], paid[row],
            figures[:, k],
        ):  # fmt: skip
            check_available("the agent's policy", policy, task)
        resumed = perf_counter()
        episode = next(episodes)
        state = update(state, plan, episode if plain else to_unit_scale(player.task, episode))
        seconds[k] = perf_counter() - resumed + planned - began
    stopped = Checkpoint(
        state, since.episodes + n_episodes, since.seed, randomness.bit_generator.state,
        (player, mdp),
    )  # fmt: skip
    if isinstance(plan, Plan):
        plan = to_user_units(player, plan)._replace(task=player.task)
    returns, values, optimal = figures
    return Run(returns, values, optimal, seconds, plan, state, player.task, stopped)


def simulate_stream(
    mdp: FiniteMDP, agent: Agent, n_episodes: Any, seed: int | None, resume: Checkpoint | None,
    n_steps: Any, restart: float,
) -> Run:  # fmt: skip
    """`simulate` without a last step. A checkpoint is of where the last plan began."""
    if n_episodes is not None:
        raise ValueError(f"{mdp.name} has no last step; give n_steps, not n_episodes")
    n_steps = positive_integer("n_steps", n_steps, most=10**9)
    if not 0.0 <= restart < 1.0:
        raise ValueError(f"restart is {restart!r}; it must be at least 0 and less than 1")
    state, since, environment, randomness = begin(agent, mdp, seed, resume, 3)
    first = first_place(mdp, environment)
    place = since.place if since.place >= 0 else first
    arrays, plan, state, before = play_stream(
        mdp, agent, state, place, environment, randomness, n_steps, since.ahead, restart
    )
    started, done, place, stream = before
    stopped = Checkpoint(
        started, since.episodes + done, since.seed, stream, (agent, mdp), place,
        n_steps + since.ahead - done,
    )  # fmt: skip
    if isinstance(plan, Plan):
        plan = to_user_units(agent, plan)._replace(task=agent.task)
    returns, values, optimal, seconds = arrays
    return Run(returns, values, optimal, seconds, plan, state, agent.task, stopped)
