"""Runs that stop and go on: the checkpoint of a run, and files that another process can read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from upriver.agents.base import check_agent, check_state
from upriver.checks import check_instance, check_kinds, check_seed, positive_integer
from upriver.display import add_repr
from upriver.mdp import FiniteMDP
from upriver.mdp.archive import digest, load_object, save_object


@add_repr
class Checkpoint(NamedTuple):
    """All that a run needs to go on exactly as if it had not stopped."""

    state: Any
    """The agent's state."""
    episodes: int
    """Number of episodes played; with an infinite horizon of steps played before the last plan."""
    seed: int
    generator: Mapping[str, Any]
    """State of the agent's generator; that of the environment follows from seed and episodes."""
    fingerprint: Any = None
    """The agent and the MDP of the run; in a file their digests."""
    stream_state: int = -1
    """With an infinite horizon: the state of the MDP where the last plan began; else -1."""
    steps_played: int = 0
    """With an infinite horizon: how many steps of the last plan have been played."""
    restart: float = 0.0
    """With an infinite horizon: the probability that the stream starts again after a step."""

    def without_closures(self) -> Checkpoint:
        """Return what a file holds: digests in place of the agent and the MDP."""
        if not isinstance(self.fingerprint, tuple):
            return self
        agent, mdp = self.fingerprint
        digests = {"agent": digest(agent), "mdp": fingerprint_mdp(mdp)}
        return self._replace(fingerprint=digests)


def spawn_generators(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Return the generators of the environment and of the agent.

    Every agent meets the same environment generator for a seed.
    """
    environment, agent = np.random.SeedSequence(check_seed(seed)).spawn(2)
    return np.random.default_rng(environment), np.random.default_rng(agent)


def restore_generators(
    resume: Checkpoint | None, seed: int | None, draws: int
) -> tuple[int, np.random.Generator, np.random.Generator]:
    """Return the seed of a run, and the generators of the environment and of the agent where it
    goes on; an episode takes `draws` uniforms from that of the environment."""
    if resume is None:
        return int(seed or 0), *spawn_generators(0 if seed is None else seed)
    if seed is not None and check_seed(seed) != resume.seed:
        raise ValueError(f"seed is {seed}; the run to resume has seed {resume.seed}")
    episodes = positive_integer("resume.episodes", resume.episodes, least=0)
    environment, randomness = spawn_generators(resume.seed)
    environment.bit_generator.advance(episodes * draws)  # type: ignore[attr-defined]
    try:
        randomness.bit_generator.state = resume.generator
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise ValueError("resume.generator is not the state of a PCG64 generator") from error
    return resume.seed, environment, randomness


def fingerprint_mdp(mdp: FiniteMDP | None) -> str:
    """Return a digest of all of an MDP that influences a run, names of states and actions included;
    "" for a black box."""
    if mdp is None:
        return ""
    task = check_instance("the MDP of the checkpoint", mdp, FiniteMDP).true_task
    return digest([task, mdp.probability, mdp.initial_states, mdp.initial_probability])


def check_fingerprint(resume: Checkpoint, agent: Any, mdp: FiniteMDP | None) -> None:
    """Refuse to resume a run with another agent or MDP than its own."""
    saved = resume.fingerprint
    if isinstance(saved, tuple) and saved[0] is agent and saved[1] is mdp:
        return
    saved = resume.without_closures().fingerprint
    if not isinstance(saved, dict):
        raise TypeError("resume.fingerprint is not the fingerprint of an agent and an MDP")
    for what, now in (("agent", digest(agent)), ("mdp", fingerprint_mdp(mdp))):
        if saved.get(what) != now:
            name = "the MDP" if what == "mdp" else "the agent"
            raise ValueError(
                f"resume is a run with another {what}: {name} is not what it was when the run "
                "stopped"
            )


@check_kinds
def save_agent(path: str | Path, run: Any) -> None:
    """Write the state of an agent in the middle of a run, and of its generator, to the file `path`.

    Parameters
    ----------
    run : Run, LearningRun or Checkpoint
        Where to go on.
    """
    checkpoint = getattr(run, "checkpoint", run)
    if not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"run is a {type(run).__name__}; it must be a run or its checkpoint")
    save_object(path, "agent", checkpoint)


@check_kinds
def load_agent(path: str | Path, agent: Any) -> Checkpoint:
    """Read the checkpoint of a run of `agent` that `save_agent` wrote to the file `path`.

    The file holds numbers and no code, so the agent is made as before and given again:
    `simulate(mdp, agent, n, resume=load_agent(path, agent))` goes on. A run with another agent or
    MDP than those of the file is refused.
    """
    check_agent(agent)
    checkpoint = load_object(path, "agent", Checkpoint, type(agent).__module__)
    check_state(agent, checkpoint.state, finite=True)
    return checkpoint
