"""Learning in a black box: an environment that can only be reset and stepped.

Only the agent's Task is known of it, so neither the value of a policy nor its regret is known: a
`LearningRun` holds the returns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from upriver.agents.base import Agent
from upriver.checks import (
    Array,
    check_kinds,
    positive_integer,
    positive_number,
    refuse_given,
)
from upriver.display import Card, add_repr, to_frame
from upriver.mdp import FactoredMDP, Task
from upriver.planning import Plan
from upriver.play import greedy
from upriver.play.checkpoints import Checkpoint
from upriver.play.discovery import Declared
from upriver.play.factored import FactoredRun, learn_factored
from upriver.play.players import AgentPlayer, DiscoveringPlayer, Player


@add_repr
class LearningRun(NamedTuple):
    """K episodes of one agent in a black box. The arrays have length K."""

    returns: Array
    """Sum of rewards received in each episode, in the environment's own units."""
    lengths: Array
    """Number of steps of each episode."""
    ended: Array
    """Whether the environment ended the episode itself, rather than the horizon."""
    seconds: Array
    """Time of planning and learning, without the environment."""
    plan: Plan
    """The plan of the last episode."""
    state: Any
    """The agent's state after the last episode."""
    task: Task
    """What the agent knows of the environment."""
    checkpoint: Checkpoint
    """Where to go on, see `learn`."""

    policy, greedy_policy, model = greedy.policy, greedy.greedy_policy, greedy.model

    def card(self) -> Card:
        recent = self.returns[-100:]
        facts: dict[str, Any] = {
            "episodes": len(self.returns), "return": float(self.returns.sum()),
            f"mean of the last {len(recent)}": float(recent.mean()),
            "ended early": int(self.ended.sum()), "regret": "unknown (black box)",
        }  # fmt: skip
        more = "plot() draws the returns, to_pandas() has every episode"
        return Card(facts, more=more, brief=f"{len(self.returns)} episodes")

    def to_pandas(self) -> Any:
        """Return a data frame with a row per episode: return, length, ended, seconds."""
        return to_frame({
            "episode": np.arange(1, len(self.returns) + 1), "return": self.returns,
            "length": self.lengths, "ended": self.ended, "seconds": self.seconds,
        })  # fmt: skip

    def plot(self) -> Any:
        """Return a figure of the return of every episode and of their running mean."""
        from upriver.display import figures

        so_far = np.cumsum(self.returns)
        return figures.plot_learning({
            "return of an episode": {"return": self.returns},
            "mean return so far": {"mean": so_far / np.arange(1, len(so_far) + 1)},
        })  # fmt: skip


@check_kinds
def learn(
    env: Any, agent: Agent | None = None, n_episodes: int | None = None, seed: int | None = None, *,
    state_of: Callable[[Any], Any] | None = None, end: Any = None, resume: Any = None,
    horizon: int | None = None, discount: float | None = None,
    actions: Sequence[Any] | None = None, successors: Callable[[Any, Any], Any] | None = None,
    reward: Callable[..., Any] | None = None, features: Callable[[Task], Any] | None = None,
    states: Sequence[Any] | None = None, reward_range: tuple[float, float] | None = None,
    callback: Callable[[int, float], Any] | None = None, max_seconds: float | None = None,
) -> LearningRun | FactoredRun:  # fmt: skip
    """Play `n_episodes` and learn a policy, through `reset` and `step` alone.

    Without an agent the states, where actions may lead, the rewards and the features are found
    while playing, and UCRL-MNL-SE learns; what is known can be declared part by part. With an agent
    its task says what is known. Each episode is reset with its own seed, drawn from `seed`, so that
    a run depends on these arguments alone where the environment honours its seed. On a terminal a
    line shows how it goes. Ctrl-C ends the run, which is returned.

    Parameters
    ----------
    env : Gymnasium environment or its id, or an object with the same `reset` and `step`
        A Discrete action space gets the numbers of actions, others their names.
    agent : Agent, optional
        A learner of a task with a finite horizon, in the environment's own units of reward. Rewards
        that are to be learned must lie within `task.reward_range`.
    state_of : function, optional
        Maps an observation to a state, by name where the states have names. By default the
        observation itself is the state, arrays as tuples of numbers.
    end : state, optional
        Of an agent's task: the state that stands for "the episode has ended"; by default the last
        observation does. It must be its own only successor in the task.
    resume : LearningRun or Checkpoint, optional
        An earlier run, which goes on; the environment is reset.
    horizon : int, optional
        The largest number of steps of an episode; by default the time limit of the environment.
    discount : float, optional
        Plan for an infinite horizon with this discount. An episode then is a stretch of `horizon`
        steps, 100 by default, and the environment is reset only where it has ended.
    actions : list, optional
        The names of the actions, where the environment has no Discrete action space.
    successors : function of (s, a), optional
        The states that can follow.
    reward : function of (s, a) or (s, a, s'), optional
        None is returned where the reward is unknown.
    features : function of a task, optional
        Such as `up.features.one_hot`; `up.features.automatic` by default.
    states : list, optional
        States that are known to exist.
    reward_range : (low, high), optional
        Bounds of one reward. By default those seen so far, with 0, and with 1 unless the rewards
        seen are costs.
    callback : function, optional
        Called after each episode with its number, from 1, and its return; True ends the run.
    max_seconds : float, optional
        No episode begins after so many seconds, but the first.

    Raises
    ------
    Exception
        What the environment, or the callback, raised or did wrong. Its attribute `run` has what was
        learned before, unless that is nothing.
    """
    n_episodes = positive_integer("n_episodes", n_episodes, most=10**9)
    most = np.inf if max_seconds is None else positive_number("max_seconds", max_seconds)
    if isinstance(env, str):
        from upriver.envs.gymnasium import make_environment

        env = make_environment(env)
    for method in ("reset", "step"):
        if not callable(getattr(env, method, None)):
            raise TypeError(f"env is a {type(env).__name__}, which has no method {method}")
    resume = resume.checkpoint if isinstance(resume, LearningRun) else resume
    declared = Declared(
        horizon, discount, actions, successors, reward, features, states, reward_range
    )  # fmt: skip
    if isinstance(getattr(agent, "task", None), FactoredMDP):
        refuse_given(
            "agents of factored problems", state_of=state_of, end=end, resume=resume,
            callback=callback, max_seconds=max_seconds, **declared._asdict(),
        )  # fmt: skip
        return learn_factored(env, agent, n_episodes, seed)
    if agent is None:
        player: Player = DiscoveringPlayer(env, state_of, resume, seed, declared)
    else:
        refuse_given("runs with an agent; its task declares it", **declared._asdict())
        player = AgentPlayer(env, agent, state_of, end, resume, seed)
    return play_episodes(player, n_episodes, callback, most)


def play_episodes(
    player: Player, n_episodes: int, callback: Callable[[int, float], Any] | None,
    max_seconds: float,
) -> LearningRun:  # fmt: skip
    """Play the episodes and return the run; errors and interruptions keep what was learned."""
    rows: list[tuple[float, int, bool, float]] = []
    before, began = player.before, perf_counter()
    shown, is_visible = began, sys.stderr.isatty()
    failure: BaseException | None = None
    try:
        while len(rows) < n_episodes and (perf_counter() - began < max_seconds or not rows):
            rows.append(player.play_one(before + len(rows)))
            if is_visible and perf_counter() - shown >= 0.2:
                shown = perf_counter()
                recent, left = np.mean([row[0] for row in rows[-10:]]), n_episodes - len(rows)
                time = f"{(shown - began) / len(rows) * left:.0f} s left"
                text = f"episode {len(rows)}/{n_episodes}, last ten {recent:.4g}, {time}"
                print(f"\r{text:<70}", end="", file=sys.stderr, flush=True)
            if callback is not None and callback(before + len(rows), rows[-1][0]) is True:
                break
    except (Exception, KeyboardInterrupt) as error:
        if not rows:
            raise
        failure = error
    finally:
        if shown > began:
            print(file=sys.stderr)
    columns: Any = map(np.array, zip(*rows, strict=True))
    run = LearningRun(*columns, *player.result(len(rows)))
    if isinstance(failure, Exception):
        failure.run = run  # type: ignore[attr-defined]
        failure.add_note(f"The {len(rows)} episodes before are in the attribute `run` of the error")
        raise failure
    return run
