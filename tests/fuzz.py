"""Wrong shapes, types and ranges through every public door: `python -m tests.fuzz SEED CALLS`.

Each call takes good arguments and spoils one. It must return, or raise a ValueError, TypeError,
FileNotFoundError or (of a matrix that cannot be factored) RuntimeError with one line of text.
Anything else is printed and ends the process with 1; a signal ends it by itself, with the call it
died of as the last line of its output.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from dataclasses import fields
from pathlib import Path

import numpy as np
from scipy import sparse

import upriver as up
from tests.reference import random_mdp
from upriver.agents.protocol import Episode
from upriver.agents.table import AGENTS
from upriver.mdp.archive import encode, read_archive, write_archive
from upriver.planning import backward_induction, clip_v

RIVER = up.envs.riverswim(4, 5)
OTHER = random_mdp(np.random.default_rng(3), 5, 3, 4)
LONG = up.envs.riverswim(9, 7)
GAPS = np.random.default_rng(4).dirichlet(np.ones(4), (4, 3))
GAPS[[0, 1, 2, 2], [2, 1, 1, 2]] = 0.0  # all have action 0, for the agent that plays it always
SPARE = up.FiniteMDP.from_arrays(GAPS, np.full((4, 3), 0.5), 5)
"""States lack actions: what they have not must not be played, learned or planned with."""
ODD = [
    None, True, -1, 0, 2**40, 10**30, 0.5, np.nan, np.inf, -np.inf, "x", b"x", (), [], {}, object(),
    [[1], [1, 2]], np.zeros(0), np.zeros((0, 3)), np.zeros((2, 2)), np.array("x"),
    np.arange(3) * 1j, np.array([None, 1]), np.full((5, 4), 99), np.full((5, 4), -1), np.int64(7),
    range(3), RIVER, RIVER.true_task, up.agents.UCRLMNL, lambda *given: 1,
    np.full((5, 4, 2), np.nan), np.array([2**62]),
]  # fmt: skip
WRITABLE = [x for x in ODD if x is None or isinstance(x, bool | int | float | str | list | tuple)]


def agents(mdp):
    for kind in AGENTS.values():
        names = {f.name for f in fields(kind)}
        for task in (mdp.true_task, mdp.true_task.with_unknown_reward()):
            if "mdp" in names:
                yield kind(mdp)
            else:
                yield kind(task, up.features.one_hot(task)) if "features" in names else kind(task)


class Door:
    """Good things made once, and ways to spoil them."""

    def __init__(self, rng: np.random.Generator, folder: Path) -> None:
        self.rng, self.folder = rng, folder
        self.played = []
        for mdp in (RIVER, OTHER, SPARE):
            for agent in agents(mdp):
                self.played.append((mdp, agent, up.simulate(mdp, agent, 2)))
        self.doors = [getattr(self, name) for name in dir(self) if name.startswith("call_")]

    def one(self, things):
        return things[int(self.rng.integers(len(things)))]

    def array(self, good):
        """An array that is nearly the good one."""
        x = np.array(good, copy=True)
        how = int(self.rng.integers(9))
        if how == 0 and x.size:
            x.flat[int(self.rng.integers(x.size))] = (
                self.one([np.nan, np.inf, -1.0, 1e300]) if x.dtype.kind == "f"
                else self.one([-1, 126, x.dtype.type(-2)])
            )  # fmt: skip
        elif how == 1:
            x = x[..., :-1]
        elif how == 2:
            x = np.concatenate([x, x], axis=-1) if x.ndim else x[None]
        elif how == 3:
            x = x.astype(self.one([np.float32, np.int8, np.uint64, complex, object, str]))
        elif how == 4:
            x = x[None]
        elif how == 5:
            x = np.asfortranarray(x)[..., ::-1]
        elif how == 6:
            x = x[:0]
        elif how == 7:
            x = x.T
        else:
            return self.one(ODD)
        return x

    def spoil(self, value):
        """The same tree with one leaf changed, or another thing altogether."""
        if isinstance(value, tuple) and len(value) and self.rng.random() < 0.9:
            i = int(self.rng.integers(len(value)))
            parts = [*value[:i], self.spoil(value[i]), *value[i + 1 :]]
            return type(value)._make(parts) if hasattr(value, "_make") else tuple(parts)
        return self.array(value) if isinstance(value, np.ndarray) else self.one(ODD)

    def spoiled(self, *given):
        """Arguments of which one is spoiled."""
        i = int(self.rng.integers(len(given)))
        return [*given[:i], self.spoil(given[i]), *given[i + 1 :]]

    def episode(self, mdp):
        first = mdp.true_task.available.argmax(axis=1)
        played = up.rollouts(mdp, first, 1)
        return Episode(played.states[0], played.actions[0], played.rewards[0])

    def call_plan(self):
        _, agent, run = self.one(self.played)
        state, rng = self.spoiled(run.state, np.random.default_rng(0))
        return agent.plan, (state, rng)

    def call_plan_with_a_strange_state(self):
        _, agent, _ = self.one(self.played)
        return agent.plan, (self.one(self.played)[2].state, np.random.default_rng(0))

    def call_update(self):
        mdp, agent, run = self.one(self.played)
        return agent.update, self.spoiled(run.state, run.plan, self.episode(mdp))

    def call_update_from_elsewhere(self):
        _, agent, run = self.one(self.played)
        mdp, _, other = self.one(self.played)
        if self.rng.random() < 0.5:
            return agent.update, (run.state, other.plan, self.episode(LONG))
        return agent.update, (other.state, run.plan, self.episode(mdp))

    def call_simulate(self):
        mdp, agent, run = self.one(self.played)
        return up.simulate, self.spoiled(mdp, agent, 2, None, run.checkpoint)

    def call_resume_elsewhere(self):
        mdp, agent, _ = self.one(self.played)
        return up.simulate, (mdp, agent, 2, None, self.one(self.played)[2].checkpoint)

    def call_load_agent(self):
        _, agent, run = self.one(self.played)
        path = self.folder / "agent.npz"
        up.save_agent(path, agent, run)
        body, arrays = read_archive(path, "agent")
        if self.rng.random() < 0.3:
            stranger: dict = {}
            other = self.one(self.played)[2].checkpoint
            body["checkpoint"] = encode(other, stranger)
            shift = {name: f"z{name}" for name in stranger}
            body["checkpoint"] = renamed(body["checkpoint"], shift)
            arrays |= {shift[name]: x for name, x in stranger.items()}
        return self.crafted(path, "agent", body, arrays, go_on)

    def call_load_policy(self):
        path = self.folder / "policy.npz"
        up.Policy.from_plan(up.solve(RIVER)).save(path)
        return self.crafted(path, "policy", *read_archive(path, "policy"), load_and_use)

    def call_load_mdp(self):
        path = self.folder / "mdp.npz"
        self.one([OTHER, SPARE]).save(path)
        return self.crafted(path, "mdp", *read_archive(path, "mdp"), load_and_solve)

    def crafted(self, path, kind, body, arrays, use):
        """A file with a digest that is right, and something else that is not."""
        if arrays and self.rng.random() < 0.6:
            name = self.one(sorted(arrays))
            spoiled = self.array(arrays[name])
            fits = isinstance(spoiled, np.ndarray) and not spoiled.dtype.hasobject
            arrays[name] = spoiled if fits else np.zeros(3)
        else:
            node, key = self.one(list(leaves(body)))
            node[key] = self.one(WRITABLE)
        write_archive(path, kind, body, arrays)
        return use, (path,)

    def call_features(self):
        mdp, _, _ = self.one(self.played)
        make = self.one([up.features.one_hot, up.features.shared])
        return make, (self.one([mdp.true_task, *ODD]),)

    def call_feature_matrix(self):
        task = OTHER.true_task
        matrix = self.rng.standard_normal((task.n_triples, 3))
        if self.rng.random() < 0.3:
            matrix = sparse.csr_array(matrix)
            spoiled = self.array(matrix.indices)
            if isinstance(spoiled, np.ndarray) and spoiled.shape == matrix.indices.shape:
                matrix.indices = spoiled
        return up.Features, self.spoiled(task, matrix)

    def call_update_with_an_action_that_is_not_there(self):
        _, agent, run = self.one([x for x in self.played if x[0] is SPARE])
        episode = self.episode(SPARE)
        actions = self.rng.integers(-1, 4, size=len(episode.actions))
        return agent.update, (run.state, run.plan, episode._replace(actions=actions))

    def call_play_an_action_that_is_not_there(self):
        policy = self.rng.integers(-1, 4, size=(5, 4))
        return self.one([(up.evaluate, (SPARE, policy)), (up.rollouts, (SPARE, policy, 2))])

    def call_evaluate(self):
        mdp = self.one([RIVER, SPARE])
        return up.evaluate, self.spoiled(mdp, up.solve(mdp).policy)

    def call_evaluate_another_plan(self):
        plan = self.one(self.played)[2].plan
        return self.one([up.evaluate, up.rollouts]), (RIVER, plan, 2)[
            : int(self.rng.integers(2, 4))
        ]

    def call_rollouts(self):
        mdp = self.one([RIVER, SPARE])
        return up.rollouts, self.spoiled(mdp, up.solve(mdp).policy, 3, 0)

    def call_solve(self):
        return up.solve, (self.one(ODD),)

    def call_induction(self):
        mdp = self.one([RIVER, SPARE])
        task = mdp.true_task
        groups = len(task.sizes)
        prob, reward, bonus, scale = self.spoiled(
            mdp.probability.copy(),
            task.reward_rows,
            np.zeros((1, groups)),
            np.zeros(task.horizon),
        )
        return backward_induction, (task, prob, reward, bonus, scale, clip_v(task), np.uint64(1))

    def call_policy(self):
        return up.Policy, self.spoiled(up.solve(RIVER).policy, 2, ["a", "b", "c", "d"], ["l", "r"])

    def call_act(self):
        return up.Policy.from_plan(up.solve(RIVER), RIVER.true_task).act, self.spoiled(1, 2)

    def call_from_plan(self):
        plan = self.one(self.played)[2].plan
        return up.Policy.from_plan, (plan, self.one([RIVER.true_task, OTHER.true_task, *ODD]))

    def call_task(self):
        task = OTHER.true_task
        return up.Task, self.spoiled(
            task.n_states, task.n_actions, task.horizon, task.indptr, task.successors, task.reward,
            "known", list("abcde"), list("xyz"),
        )  # fmt: skip

    def call_mdp(self):
        return up.FiniteMDP, self.spoiled(
            OTHER.true_task, OTHER.probability, OTHER.initial_states, OTHER.initial_probability,
            OTHER.local,
        )  # fmt: skip

    def call_from_arrays(self):
        table = np.full((3, 2, 3), 1 / 3)
        table[2, 1] = 0.0
        return up.FiniteMDP.from_arrays, self.spoiled(table, np.full((3, 2), 0.5), 4, 0)

    def call_from_rows(self):
        return up.FiniteMDP.from_rows, self.spoiled({(0, 0): {0: 1.0}}, {(0, 0): 0.5}, 3, 0)


def renamed(tree, shift):
    """The tree of a body whose arrays have other names."""
    if isinstance(tree, list):
        return [renamed(x, shift) for x in tree]
    if not isinstance(tree, dict):
        return tree
    out = {k: renamed(x, shift) for k, x in tree.items()}
    for key in ("array", "scalar"):
        if key in out:
            out[key] = shift[out[key]]
    return out


def leaves(tree):
    """(container, key) of everything in a JSON tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield tree, key
        if isinstance(value, dict | list):
            yield from leaves(value)


def go_on(path):
    agent, checkpoint = up.load_agent(path)
    task = agent.task
    mdp = OTHER if task.n_states == 5 else SPARE if task.n_actions == 3 else RIVER
    return up.simulate(mdp, agent, 2, resume=checkpoint)


def load_and_use(path):
    return up.rollouts(RIVER, up.load_policy(path), 3)


def load_and_solve(path):
    return up.solve(up.FiniteMDP.load(path))


def main(seed: int, calls: int) -> int:
    rng = np.random.default_rng(seed)
    np.seterr(all="ignore")
    wrong: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        door = Door(rng, Path(folder))
        for i in range(calls):
            make = door.one(door.doors)
            call, given = make()
            print(
                f"\r{i} {make.__name__}: {getattr(call, '__qualname__', call)}", end="", flush=True
            )
            try:
                call(*given)
            except (RecursionError, NotImplementedError) as error:
                text, where = f"{type(error).__name__}: {error}", error.__traceback__
            except (ValueError, TypeError, FileNotFoundError, RuntimeError) as error:
                text = "" if str(error) and "\n" not in str(error) else f"{type(error)} {error}"
                where = error.__traceback__
            except BaseException as error:
                text, where = f"{type(error).__name__}: {error}", error.__traceback__
            else:
                continue
            if text:
                frames = traceback.extract_tb(where)[-3:]
                at = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames))
                wrong.setdefault(f"{make.__name__} {at}", f"{text:.200}  {given!r:.150}")
    for at, text in wrong.items():
        print(f"\n{at}: {text}")
    print(f"\n{calls} calls, {len(wrong)} places that gave neither a result nor a sentence")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
