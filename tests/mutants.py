"""Change a constant, a sign or a power in the source, and see whether the tests notice.

`python -m tests.mutants [WORD ...]` takes the changes of `MUTANTS` whose file or text has one of
the words, all of them without words. It runs the tests of these files once; then it makes each
change in a process of its own, runs the tests again until the first failure, and prints whether one
failed. To add a change: the file, what to replace (it must occur once), and with what.

A changed module is executed again in the place of the old one, which is quick. A changed kernel
needs a copy of the source, where everything is compiled again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

os.environ["NUMBA_NUM_THREADS"] = "1"  # threads do not survive a fork

import pytest

ROOT = Path(__file__).parent.parent
OPTIONS = ["-xqm", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header"]

Mutant = tuple[str, str, str]
"""File under src/upriver, old text, new text."""

PLANNING: list[Mutant] = [
    ("planning/induction.py", "np.full(task.horizon, task.units.max_value)",
     "np.full(task.horizon, 2.0 * task.units.max_value)"),
    ("planning/induction.py", "clip_nothing(task).q_cap, task.units.value_range[:-1].copy()",
     "clip_nothing(task).q_cap, task.units.value_range[1:].copy()"),
    ("planning/induction.py", "return Clip(0.0, clip_nothing(task).q_cap",
     "return Clip(-np.inf, clip_nothing(task).q_cap"),
    ("planning/induction.py", "return Clip(0.0, cap, cap)", "return Clip(-np.inf, cap, cap)"),
    ("planning/induction.py", "return Clip(-np.inf, cap, cap)", "return Clip(0.0, cap, cap)"),
    ("planning/induction.py", "rng.integers(task.available.sum(axis=1), size=shape)",
     "rng.integers(np.minimum(task.available.sum(axis=1), 2), size=shape)"),
    ("planning/induction.py", "units.floor[:, None] + units.unit * self.v",
     "units.floor[:, None] + self.v"),
    ("planning/induction.py", "units.floor[h] + units.unit * unit_scale(h)",
     "units.floor[0] + units.unit * unit_scale(h)"),
    ("planning/optimum.py", "v[-1] = mdp.terminal", "v[-1] = 0.0"),
    ("planning/optimum.py", "terminal=mdp.terminal", "terminal=np.zeros(task.n_states)"),
    ("planning/optimum.py", "float(first[mdp.initial_states] @ mdp.initial_probability)",
     "float(first[mdp.initial_states].mean())"),
    ("planning/optimum.py", "last_difference(policy, previous) + 1",
     "last_difference(policy, previous)"),
    ("planning/policy_iteration.py", "float(low - rounding), float(high + rounding)",
     "float(low), float(high)"),
    ("planning/policy_iteration.py", "return 0.5 * (self.max_change - self.min_change)",
     "return 0.25 * (self.max_change - self.min_change)"),
    ("planning/policy_iteration.py", "return 0.5 * (self.min_change + self.max_change)",
     "return self.max_change"),
    ("planning/policy_iteration.py", "if spread <= max(tolerance, rounding)",
     "if spread <= max(30.0 * tolerance, rounding)"),
    ("planning/policy_iteration.py", "possible = prob > 0.0", "possible = prob >= 0.0"),
    ("planning/policy_iteration.py", "mixture.sum(axis=1), 1.0, atol=1e-8",
     "mixture.sum(axis=1), 1.0, atol=1.0"),
    ("planning/stationary.py", "ratio = discount / (1.0 - discount)",
     "ratio = 1.0 / (1.0 - discount)"),
    ("planning/stationary.py", "tolerance / max(ratio, 1.0)", "tolerance"),
    ("planning/stationary.py", "error = (ratio + 1.0) * found.half_spread",
     "error = 0.5 * ratio * found.half_spread"),
    ("planning/stationary.py", "v = found.values + ratio * found.mean_change",
     "v = found.values + found.mean_change"),
    ("planning/stationary.py", "while not found.half_spread <= tolerance",
     "while not found.half_spread <= 1e4 * tolerance"),
    ("planning/stationary.py", "found = iterate_policies(rows, 1.0, DAMPING, tolerance, stop",
     "found = iterate_policies(rows, 1.0, DAMPING, 30.0 * tolerance, stop"),
    ("planning/stationary.py", "bias = found.values - found.values.mean()",
     "bias = found.values - found.values[0]"),
    ("planning/stationary.py", "gain, error = found.mean_change, found.half_spread",
     "gain, error = found.mean_change, 0.1 * found.half_spread"),
    ("planning/stationary.py", "if len(classes) > 1:", "if len(classes) > 2:"),
    ("planning/stationary.py", "return Visits(float(first @ v), v, solve(first, \"T\"))",
     "return Visits(float(first @ v), v, solve(first))"),
    ("planning/stationary.py", "solve(np.append(np.zeros(n), 1.0), \"T\")[:n]",
     "solve(np.append(np.ones(n) / n, 1.0), \"T\")[:n]"),
    ("planning/stationary.py", "if 1.0 - discount < MIN_DISCOUNT_GAP", "if 1.0 - discount < 0.0"),
    ("planning/infinite_horizon.py", "discount / (1.0 - discount) * found.mean_change",
     "1.0 / (1.0 - discount) * found.mean_change"),
    ("planning/tables.py", "(table >= n_actions)", "(table > n_actions)"),
    ("planning/tables.py", "bad = (weights > 0) &", "bad = (weights > 1) &"),
    ("planning/tables.py", "numbers[a] = task.action_names.number(actions[a])",
     "numbers[a] = a"),
]  # fmt: skip
AGENTS: list[Mutant] = [
    ("agents/ucmnlk.py", "np.minimum(2.0 * self.beta(state)", "np.minimum(self.beta(state)"),
    ("agents/ucmnlk.py", "np.minimum(2.0 * self.beta(state) * state.model.max_norm, 2.0)",
     "np.minimum(2.0 * self.beta(state) * state.model.max_norm, 1.0)"),
    ("agents/ucmnlk.py", "self.scale * sqrt(e.dimension)", "self.scale * e.dimension"),
    ("agents/ucmnlk.py", "/ (1.0 - self.discount)) ** 2", "/ (1.0 - self.discount))"),
    ("agents/ucmnlk.py", "e.k / (1.0 - self.discount)", "e.k"),
    ("agents/ucmnlk.py", "log(e.n_states * e.k", "log(e.k"),
    ("agents/ucmnlk.py", "sqrt(self.features.formal_dimension", "(self.features.formal_dimension"),
    ("agents/ucmnlk.py", "1.0 - 1.0 / (1.0 + self.task.horizon)",
     "1.0 - 1.0 / self.task.horizon"),
    ("agents/ucmnlk.py", "0.5 * log(2.0) + 2.0", "0.5 * log(2.0) + 1.0"),
    ("agents/ucmnlk.py", "after._replace(k=state.k + len(episode.actions))",
     "after._replace(k=state.k + 1)"),
    ("agents/ucmnlk.py", "np.minimum(self.beta(state) * model.max_norm, 2.0)",
     "np.minimum(2.0 * self.beta(state) * model.max_norm, 2.0)"),
    ("agents/ucmnlk.py", "size[0], draw_tie_seed(rng), self.gamma)",
     "size[0], draw_tie_seed(rng), 0.9 * self.gamma)"),
    ("agents/ucrl_mnl_lr.py", "log(max(n_classes, 1) * len(counts) / self.delta)",
     "log(len(counts) / self.delta)"),
    ("agents/ucrl_mnl_lr.py", "log(max(n_classes, 1) * len(counts) / self.delta)",
     "log(max(n_classes, 1) / self.delta)"),
    ("agents/ucrl_mnl_lr.py", "+ gammaln(n + n_successors)", "+ gammaln(n + n_successors - 1.0)"),
    ("agents/ucrl_mnl_lr.py", "- gammaln(n_successors)", "- gammaln(n_successors + 1.0)"),
    ("agents/ucrl_mnl_lr.py", "gammaln(pooled + 1.0)", "gammaln(pooled + 2.0)"),
    ("agents/ucrl_mnl_lr.py", "np.maximum(n, 1.0), np.inf)", "np.maximum(n, 1.0), 2.0)"),
    ("agents/ucbvi.py", "7.0 * task.units.max_value", "6.0 * task.units.max_value"),
    ("agents/ucbvi.py", "14.0 * horizon * size / 3.0", "14.0 * horizon * size / 2.0"),
    ("agents/ucbvi.py", "doubt / state_visits[1:]", "doubt / state_visits[:-1]"),
    ("agents/ucrl2.py", "radius_by_successors(task, visits, 14.0 * size)",
     "radius_by_successors(task, visits, 12.0 * size)"),
    ("agents/ucrl2.py", "task.n_states * log(2.0", "task.n_states * log(1.0"),
    ("agents/rlsvi.py", "sqrt(0.5 * horizon**3", "sqrt(0.5 * horizon**2"),
    ("agents/rlsvi.py", "counts.visits / precision", "1.0"),
    ("agents/epsilon_greedy.py", "state.k**-self.decay", "state.k**self.decay"),
    ("agents/rrl_mnl.py", "3.0 * horizon * (beta * model.max_norm) ** 2",
     "2.0 * horizon * (beta * model.max_norm) ** 2"),
    ("agents/ucrl_mnl_plus.py", "SECOND_ORDER: ClassVar[float] = 2.5",
     "SECOND_ORDER: ClassVar[float] = 3.0"),
    ("agents/ucrl_mnl_ll.py", "2.5 * task.units.max_value", "3.0 * task.units.max_value"),
    ("agents/psrl.py", "shape / self.inflation", "shape * self.inflation"),
    ("agents/uc_matrix_rl.py", "self.regularization * np.eye(phi.shape[1])",
     "np.eye(phi.shape[1])"),
]  # fmt: skip
MNL: list[Mutant] = [
    ("mnl/radii.py", "4.0 / (big * sqrt(lam))", "2.0 / (big * sqrt(lam))"),
    ("mnl/radii.py", "0.5 * e.logdet_ratio", "e.logdet_ratio"),
    ("mnl/radii.py", "1.0 / (4.0 * big)", "1.0 / big"),
    ("mnl/radii.py", "1.0 + e.k * e.horizon * e.n_states / d_lam", "1.0 + e.k * e.horizon / d_lam"),
    ("mnl/radii.py", "sqrt(0.5 * log(1.0 + e.k))", "sqrt(log(1.0 + e.k))"),
    ("mnl/radii.py", "return max(big, self.constant * big * d * growth)",
     "return self.constant * big * d * growth"),
    ("mnl/online.py", "8.0 * d / self.kappa", "4.0 * d / self.kappa"),
    ("mnl/online.py", "32.0 * size / 3.0", "16.0 * size / 3.0"),
    ("mnl/online.py", "+ 2.0 * sqrt(2.0)", "+ sqrt(2.0)"),
    ("mnl/online.py", "1.25 * lam", "lam"),
    ("mnl/online.py", "sqrt(6.0)", "sqrt(3.0)"),
    ("mnl/online.py", "kappa / 2.0", "kappa"),
    ("mnl/online.py", "log(features.task.max_successors) + 1.0 + size",
     "log(features.task.max_successors) + 2.0 + size"),
    ("mnl/online.py", "48.0 * big**2", "24.0 * big**2"),
    ("mnl/online.py", "1.0 - log(task.horizon) / log(PHI_1)", "-log(task.horizon) / log(PHI_1)"),
    ("mnl/newton.py", "if ridge == 0.0 and vanished.any()", "if False"),
    ("mnl/newton.py", "data.lam / weight", "data.lam"),
    ("mnl/newton.py", "DECREMENT = 1e-12", "DECREMENT = 1e-2"),
    ("mnl/newton.py", "loss * weight", "loss"),
    ("mnl/likelihood.py", "0.5 * regularization * float(theta @ theta)",
     "regularization * float(theta @ theta)"),
    ("mnl/likelihood.py", "(expected - weights) + regularization * theta", "(expected - weights)"),
    ("mnl/likelihood.py", "root.T @ root + regularization * np.eye(d)", "root.T @ root"),
]  # fmt: skip
KERNELS: list[Mutant] = [
    ("kernels/tabular.py", "free = 1.0 - np.exp(f - radius)", "free = 0.0"),
    ("kernels/tabular.py", "spread = 0.25 * bonus", "spread = 0.5 * bonus"),
    ("kernels/tabular.py", "left = min(0.5 * radius", "left = min(radius"),
    ("kernels/tabular.py", "max(visits[pair], 1.0)", "max(2.0 * visits[pair], 1.0)"),
    ("kernels/online.py", "- 2.0 * image[u] + centre", "- image[u] + centre"),
    ("kernels/online.py", "ROOT_STEPS = 100", "ROOT_STEPS = 1"),
    ("kernels/planning.py", "if seed % ties ==", "if seed % np.uint64(2) =="),
    ("kernels/planning.py", "total += m[pair] * expected", "total += expected"),
    ("kernels/episodes.py", "if u < total:", "if u <= 0.5 * total:"),
    ("kernels/episodes.py", "if uniforms[t, 2] < restart", "if uniforms[t, 2] < 0.5 * restart"),
    ("kernels/newton.py", "DECREMENT = 1e-10", "DECREMENT = 1.0"),
    ("kernels/linear.py", "root[start + i * m + j] = x / factor[i, i] if i >= j else 0.0",
     "root[start + i * m + j] = x if i >= j else 0.0"),
    ("kernels/ellipsoid.py", "ascend(p, first, n, target, beta, 1.0, 1e-3, search)",
     "ascend(p, first, n, target, beta, 0.5, 1e-3, search)"),
]  # fmt: skip
STATIONARY = "planning/test_infinite_horizon.py"
TESTS = {
    "planning/induction.py": "planning/test_planning.py planning/test_optimism.py mdp/test_units.py"
    " mdp/test_action_sets.py",
    "planning/optimum.py": f"planning/test_planning.py {STATIONARY}",
    "planning/policy_iteration.py": STATIONARY,
    "planning/stationary.py": STATIONARY,
    "planning/infinite_horizon.py": f"{STATIONARY} agents/test_ties.py agents/test_ucmnlk.py",
    "planning/tables.py": "planning/test_planning.py play/test_policy.py mdp/test_action_sets.py",
    "agents/ucmnlk.py": "agents/test_ucmnlk.py agents/test_ucrl_mnl_l1.py",
    "agents/rrl_mnl.py": "agents/test_rrl_mnl.py agents/test_orrl_mnl.py",
    "mnl/radii.py": "mnl/test_radii.py",
    "mnl/online.py": "mnl/test_online.py",
    "mnl/newton.py": "mnl/test_fit.py",
    "mnl/likelihood.py": "mnl/test_likelihood.py",
    "kernels/tabular.py": "kernels/test_tabular.py agents/test_ucbvi.py agents/test_ucrl2.py",
    "kernels/online.py": "mnl/test_online.py",
    "kernels/planning.py": "kernels/test_planning.py planning/test_planning.py agents/test_ties.py",
    "kernels/episodes.py": "play/test_simulate.py play/test_rollouts.py play/test_streams.py",
    "kernels/newton.py": "mnl/test_model.py mnl/test_likelihood.py mnl/test_fit.py",
    "kernels/linear.py": "agents/test_ucrl_vtr.py",
    "kernels/ellipsoid.py": "kernels/test_ellipsoid.py",
}
"""The tests of a file; of others those of its name, agents/ucbvi.py: agents/test_ucbvi.py."""
MUTANTS = [*PLANNING, *AGENTS, *MNL, *KERNELS]


def tests_of(file: str) -> list[str]:
    folder, name = file.split("/")
    return [f"tests/{test}" for test in TESTS.get(file, f"{folder}/test_{name}").split()]


def change(mutant: Mutant) -> str:
    """Return the source of the file with the change."""
    file, old, new = mutant
    text = (ROOT / "src/upriver" / file).read_text()
    if text.count(old) != 1:
        raise ValueError(f"{file} has {old!r} {text.count(old)} times; it must have it once")
    return text.replace(old, new)


def replace_module(name: str, text: str) -> None:
    """Execute a module again, and give its new functions and classes to all that imported them."""
    module = import_module(name)
    before = dict(vars(module))
    exec(compile(text, str(module.__file__), "exec"), vars(module))
    new = {
        id(old): vars(module)[key]
        for key, old in before.items()
        if callable(old) and getattr(old, "__module__", "") == name
    }
    for other in [m for key, m in sys.modules.items() if key.startswith("upriver")]:
        for key, value in list(vars(other).items()):
            if id(value) in new:
                setattr(other, key, new[id(value)])
    for key in [key for key in sys.modules if key.startswith("tests.")]:
        del sys.modules[key]  # tests are imported again


def survives(mutant: Mutant) -> bool:
    """Return whether the tests pass with the change."""
    file, text = mutant[0], change(mutant)
    if file.startswith("kernels/"):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "src"
            shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
            (source / "upriver" / file).write_text(text)
            paths = f"{source}{os.pathsep}{ROOT}"
            command = [sys.executable, "-m", "pytest", *OPTIONS, *tests_of(file)]
            environment = {**os.environ, "PYTHONPATH": paths, "NUMBA_CACHE_DIR": folder}
            done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
        return done.returncode == 0
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    replace_module("upriver." + file.removesuffix(".py").replace("/", "."), text)
    os._exit(pytest.main([*OPTIONS, *tests_of(file)]))


def main() -> None:
    words = sys.argv[1:]
    chosen = [m for m in MUTANTS if not words or any(w in text for w in words for text in m[:2])]
    needed = [m[0] for m in chosen if not m[0].startswith("kernels/")]
    tests = dict.fromkeys(test for file in needed for test in tests_of(file))
    if tests and pytest.main([*OPTIONS, *tests]) != 0:
        sys.exit("the tests fail without a change")
    alive = 0
    for mutant in chosen:
        lives = survives(mutant)
        alive += lives
        print("survived" if lives else "noticed ", *mutant, sep="  ", flush=True)
    print(f"{len(chosen) - alive} of {len(chosen)} changes were noticed")


if __name__ == "__main__":
    main()
