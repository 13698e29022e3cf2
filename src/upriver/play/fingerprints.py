"""Digests by which the agent and the MDP of a run are recognised when the run is resumed."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from upriver.checks import Array
from upriver.mdp import FiniteMDP
from upriver.mdp.archive import digest, encode, fingerprints, name_of


def fingerprint_run(agent: Any, mdp: FiniteMDP | None) -> dict[str, str]:
    """Return the digests of everything that influences a run beside its seed and length."""
    return {"agent": fingerprint_agent(agent), "mdp": fingerprint_mdp(mdp)}


def fingerprint_agent(agent: Any) -> str:
    """Return a digest of the class of an agent and of its fields, features included."""
    values = fingerprints(agent) if is_dataclass(agent) and not isinstance(agent, type) else {}
    return digest({"class": name_of(type(agent))} | values, {})


def fingerprint_mdp(mdp: FiniteMDP | None) -> str:
    """Return a digest of the whole MDP; "" for a black box.

    It covers probabilities, rewards, reward range, horizon or discount, names, start and terminal
    values. The name of the MDP does not influence a run.
    """
    if mdp is None:
        return ""
    task = mdp.true_task
    parts = {field.name: getattr(task, field.name) for field in fields(task)}
    for what in ("states", "actions"):  # names may be objects that no file can hold
        parts[what] = None if parts[what] is None else list(map(repr, parts[what]))
    arrays: dict[str, Array] = {}
    start = mdp.initial_states, mdp.initial_probability
    return digest(encode([parts, mdp.probability, *start], arrays), arrays)


def check_fingerprint(saved: Any, agent: Any, mdp: FiniteMDP | None) -> None:
    """Refuse to resume a run with another agent or MDP than `saved`: these objects, or from a file
    their digests."""
    if isinstance(saved, tuple) and len(saved) == 2 and isinstance(saved[1], FiniteMDP | None):
        if saved[0] is agent and saved[1] is mdp:
            return
        saved = fingerprint_run(*saved)
    if not isinstance(saved, dict):
        raise TypeError("resume.fingerprint is not the fingerprint of an agent and an MDP")
    for what, now in fingerprint_run(agent, mdp).items():
        if saved.get(what) != now:
            name = "the MDP" if what == "mdp" else "the agent"
            raise ValueError(
                f"resume is a run with another {what}: {name} is not what it was when the run "
                "stopped"
            )
