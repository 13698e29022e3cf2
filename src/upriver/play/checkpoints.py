"""Agents in the middle of a run, as files that another process can go on from."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any, NamedTuple

from upriver.agents.guard import check_agent, check_state
from upriver.checks import Array
from upriver.mdp.archive import (
    Unwritable,
    decode_from,
    encode,
    fingerprints,
    is_ours,
    name_of,
    read_archive,
    write_archive,
)
from upriver.play.simulate import Checkpoint


class Saved(NamedTuple):
    """What `load_agent` returns; `simulate(mdp, agent, n, resume=checkpoint)` goes on."""

    agent: Any
    checkpoint: Any


def save_agent(path: Any, agent: Any, run: Any) -> None:
    """Write an agent in the middle of a run: its inputs, its state and its generator.

    run: a run, or its checkpoint. Inputs that are functions of the user's own cannot be written;
    `load_agent` then needs the agent again.
    """
    checkpoint = getattr(run, "checkpoint", run)
    if not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"run is a {type(run).__name__}; it must be a run or its checkpoint")
    if not is_dataclass(agent) or isinstance(agent, type):
        raise TypeError(f"agent is a {type(agent).__name__}; it must be a dataclass of its inputs")
    arrays: dict[str, Array] = {}
    try:
        whole = encode(agent, arrays) if is_ours(type(agent)) else None
    except Unwritable:
        whole, arrays = None, {}
    body = {
        "class": name_of(type(agent)),
        "fingerprints": fingerprints(agent),
        "agent": whole,
        "checkpoint": encode(checkpoint, arrays),
    }
    write_archive(path, "agent", body, arrays)


def load_agent(path: Any, agent: Any = None) -> Saved:
    """(agent, checkpoint) of a file that `save_agent` wrote.

    agent: needed only where the file could not hold it, because its class or one of its inputs is
    the user's own; it must have the inputs that it was saved with.
    """
    body, arrays = read_archive(path, "agent")
    if agent is not None:
        if name_of(type(agent)) != body["class"]:
            raise ValueError(f"{path} holds a {body['class']}, not a {name_of(type(agent))}")
        for name, print_ in fingerprints(agent).items():
            if body["fingerprints"].get(name) != print_:
                raise ValueError(f"{name} of the agent is not what it was when {path} was saved")
    elif body["agent"] is None:
        raise ValueError(
            f"{path} holds an agent with code of your own ({body['class']} or one of its inputs); "
            "call load_agent(path, agent) with the same agent"
        )
    else:
        agent = decode_from(path, body["agent"], arrays)
    checkpoint = decode_from(path, body["checkpoint"], arrays, type(agent).__module__)
    if not isinstance(checkpoint, Checkpoint):
        raise ValueError(f"{path} holds no checkpoint of an agent")
    check_agent(agent)
    try:
        check_state(agent, checkpoint.state, finite=True)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return Saved(agent, checkpoint)
