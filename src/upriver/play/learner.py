"""An agent in a run: whether it fits the MDP, how it begins or goes on, its clock, and units.

Every agent works on the unit scale of rewards. Only this module converts: an episode before
`update`, and the last plan of a run.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from upriver.agents.base import CheckedAgent, Episode, check_agent, check_state
from upriver.checks import check_instance, positive_integer
from upriver.mdp import FiniteMDP, Task
from upriver.mdp.validation import reward_bounds
from upriver.planning import Plan, check_available
from upriver.play.checkpoints import Checkpoint, check_fingerprint, restore_generators


class Learner:
    """An agent, what it has learned, and the generators of a run.

    The MDP is None for a black box; an episode takes `draws` uniforms from the environment's
    generator.
    """

    def __init__(
        self, agent: Any, mdp: FiniteMDP | None, seed: int | None, resume: Any, draws: int
    ) -> None:
        check_agent(agent)
        if mdp is not None:
            check_same_problem(agent.task, mdp.true_task)
        self.agent, self.mdp, self.task = agent, mdp, agent.task
        if resume is not None:
            check_instance("resume", resume, Checkpoint)
            check_fingerprint(resume, agent, mdp)
            check_state(agent, resume.state, finite=True)
            last = 0 if mdp is None else mdp.n_states - 1
            positive_integer("resume.steps_played", resume.steps_played, least=0)
            positive_integer("resume.stream_state", resume.stream_state, least=-1, most=last)
        seed, self.environment, self.randomness = restore_generators(resume, seed, draws)
        self.before = Checkpoint(agent.init(), 0, seed, {}) if resume is None else resume
        self.state = self.before.state
        # without the checks of arguments, unless a class replaced them
        kind = type(agent)
        is_checked = getattr(kind, "plan", None) is CheckedAgent.plan
        self.make_plan = agent.make_plan if is_checked else agent.plan
        is_checked = getattr(kind, "update", None) is CheckedAgent.update
        self.update = agent.advance if is_checked else agent.update
        self.last_plan: Any = None
        self.seconds = 0.0
        """Time of the last plan, and of learning from it."""

    def plan(self) -> Any:
        """Return the plan of the next episode."""
        self.last_plan = None  # a large plan is not held twice
        began = perf_counter()
        self.last_plan = self.make_plan(self.state, self.randomness)
        self.seconds = perf_counter() - began
        return self.last_plan

    def to_unit_scale(self, episode: Episode) -> Episode:
        """Return an episode with its rewards on the unit scale."""
        return episode._replace(rewards=self.task.units.to_unit_scale(episode.rewards))

    def steps_kept(self, episode: Episode) -> int:
        """Return after how many steps of an episode of a stream its plan is to be made again."""
        began = perf_counter()
        played = self.to_unit_scale(episode)
        kept = self.agent.steps_until_replan(self.state, self.last_plan, played)
        self.seconds += perf_counter() - began
        return positive_integer("steps_until_replan", kept, most=len(episode.actions))

    def learn(self, episode: Episode) -> None:
        """Learn from the episode of the last plan, in the user's units."""
        began = perf_counter()
        self.state = self.update(self.state, self.last_plan, self.to_unit_scale(episode))
        self.seconds += perf_counter() - began

    def checkpoint(self, n_episodes: int, *stream: Any) -> Checkpoint:
        """Return the checkpoint after `n_episodes` more episodes, or steps of a stream."""
        before, generator = self.before, self.randomness.bit_generator.state
        return Checkpoint(
            self.state, before.episodes + n_episodes, before.seed, generator,
            (self.agent, self.mdp), *stream,
        )  # fmt: skip

    def result(self, checkpoint: Checkpoint) -> tuple[Any, ...]:
        """Return what a run ends with: its last plan, state, task and checkpoint."""
        return final_plan(self.last_plan, self.task), self.state, self.task, checkpoint


def final_plan(plan: Any, task: Task) -> Any:
    """Return an agent's plan in the user's units, with the names of its task."""
    if not isinstance(plan, Plan):
        return plan
    return plan.to_user_units(task)._replace(task=task)


def check_same_problem(task: Task, true_task: Task) -> None:
    """Refuse an agent of another problem: sizes and names must agree, in the same order."""
    for what in ("n_states", "n_actions", "horizon", "discount"):
        if getattr(task, what) != getattr(true_task, what):
            raise ValueError(
                f"the agent's task has {task.describe()}, the MDP has {true_task.describe()}; "
                "build the agent from a task of this MDP"
            )
    for what in ("state_names", "action_names"):
        mine, true = getattr(task, what), getattr(true_task, what)
        if mine.numbers_in(true, "the MDP") is not None:
            i = next(i for i in range(mine.size) if mine[i] != true[i])
            raise ValueError(
                f"{mine.what} {i} is {mine[i]!r} in the agent's task and {true[i]!r} in the MDP; "
                "build the agent from a task of this MDP, with the same order of names"
            )
    if task.reward is None and true_task.reward is not None and task.reward_range is not None:
        (least, most), (low, high) = task.reward_range, reward_bounds(true_task)
        slack = 1e-9 * (most - least)
        if low < least - slack or high > most + slack:
            raise ValueError(
                f"the agent's task has unknown rewards in reward_range ({least:g}, {most:g}), and "
                f"those of the MDP lie between {low:g} and {high:g}; give the task their bounds"
            )
    extra = task.available & ~true_task.available
    if extra.any():
        raise ValueError(
            f"the agent's task has the pair {task.describe_pair(int(np.argmax(extra)))}, which the "
            "MDP does not have; build the agent from a task of this MDP"
        )


def check_table(policy: Any, task: Task) -> None:
    """Refuse a table that is no policy: the kernels would read past its end."""
    shape = task.horizon, task.n_states
    is_table = isinstance(policy, np.ndarray) and policy.shape == shape
    if not is_table or policy.dtype.kind not in "iu" or not policy.dtype.isnative:
        kind = policy.dtype if isinstance(policy, np.ndarray) else type(policy).__name__
        raise ValueError(
            f"the agent's policy is {kind} of shape {np.shape(policy)}; "
            f"it must be whole numbers of shape {shape}"
        )
    check_available("the agent's policy", policy, task)
