"""Change a constant, a sign or a power in the source, and see whether the tests notice.

`python -m tests.mutants [WORD ...]` takes the changes of `MUTANTS` whose file or text has one of
the words, all of them without words. It runs the tests of these files once; then it makes each
change in a process of its own, runs the tests again until the first failure, and prints whether one
failed. To add a change: the file, what to replace (it must occur once), and with what.

A changed module is imported with its new text, in a fork of a process that has run no test: the
threads of libraries do not survive a fork, and whoever waits for them would hang. Kernels
come from numba's cache. A changed kernel needs a copy of the source, where everything is compiled
again.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ["NUMBA_NUM_THREADS"] = "1"  # threads do not survive a fork

import pytest

import upriver

ROOT = Path(__file__).parent.parent
OPTIONS = ["-xqm", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header"]
OPTIONS += ["--deselect", "tests/logs/test_value.py::test_clusters_count_in_the_behaviour"]  # long

SECONDS = 600

Mutant = tuple[str, str, str]
"""File under src/upriver, old text, new text."""

PLANNING: list[Mutant] = [
    ("planning/induction.py", "NO_CAP, np.array([task.units.max_value])",
     "NO_CAP, np.array([2.0 * task.units.max_value])"),
    ("planning/induction.py", "NO_CAP, task.units.value_range)",
     "NO_CAP, task.units.value_range[1:])"),
    ("planning/induction.py", "return Clip(0.0, cap, cap)", "return Clip(-np.inf, cap, cap)"),
    ("planning/induction.py", "clip_q(task)._replace(low=-np.inf)", "clip_q(task)"),
    ("planning/induction.py", "rng.integers(task.available.sum(axis=1), size=shape)",
     "rng.integers(np.minimum(task.available.sum(axis=1), 2), size=shape)"),
    ("planning/induction.py", "units.floor[:, None] + units.unit * self.v",
     "units.floor[:, None] + self.v"),
    ("planning/induction.py", "self.units.floor[h] + self.units.unit * q",
     "self.units.floor[0] + self.units.unit * q"),
    ("planning/optimum.py", "v[-1] = mdp.terminal", "v[-1] = 0.0"),
    ("planning/optimum.py", "terminal=mdp.terminal", "terminal=np.zeros(task.n_states)"),
    ("planning/optimum.py", "float(first[mdp.initial_states] @ mdp.initial_probability)",
     "float(first[mdp.initial_states].mean())"),
    ("planning/optimum.py", "max(initial=-1) + 1", "max(initial=0)"),
    ("planning/policy_iteration.py", "0.5 * (high - low) + rounding", "0.5 * (high - low)"),
    ("planning/policy_iteration.py", "0.5 * (high - low) + rounding",
     "0.25 * (high - low) + rounding"),
    ("planning/policy_iteration.py", "middle, half = 0.5 * (low + high)", "middle, half = high"),
    ("planning/policy_iteration.py", "bool(spread <= max(tolerance, rounding) or stalled)",
     "bool(spread <= max(30.0 * tolerance, rounding) or stalled)"),
    ("planning/policy_iteration.py", "    matrix.eliminate_zeros()\n", ""),
    ("planning/tables.py", "np.allclose(total, 1.0, atol=1e-8",
     "np.allclose(total, 1.0, atol=1.0"),
    ("planning/stationary.py", "ratio, gain = discount / (1.0 - discount), None",
     "ratio, gain = 1.0 / (1.0 - discount), None"),
    ("planning/stationary.py", "tolerance / max(ratio, 1.0)", "tolerance"),
    ("planning/stationary.py", "(ratio + 1.0) * found.half_spread",
     "0.5 * ratio * found.half_spread"),
    ("planning/stationary.py", "found.values + ratio * found.mean_change",
     "found.values + found.mean_change"),
    ("planning/policy_iteration.py", "NEAR_GAPS = (1e-8, 1e-10, 1e-5, 1e-2)", "NEAR_GAPS = ()"),
    ("planning/policy_iteration.py", "DAMPING = 0.1", "DAMPING = 0.0"),
    ("planning/stationary.py", "found.values - found.values.mean()",
     "found.values - found.values[0]"),
    ("planning/stationary.py", "found.values.mean(), found.half_spread",
     "found.values.mean(), 0.1 * found.half_spread"),
    ("planning/stationary.py", "max(high - low, temperature) or 1.0", "1.0"),
    ("planning/stationary.py", "if len(classes) > 1:", "if len(classes) > 2:"),
    ("planning/stationary.py", "visits = solve(first, \"T\")", "visits = solve(first)"),
    ("planning/stationary.py", "solve(np.append(np.zeros(n), 1.0), \"T\")[:n]",
     "solve(np.append(np.ones(n) / n, 1.0), \"T\")[:n]"),
    ("planning/stationary.py", "if 1.0 - checked < MIN_DISCOUNT_GAP", "if 1.0 - checked < 0.0"),
    ("planning/infinite_horizon.py", "discount / (1.0 - discount) * found.mean_change",
     "1.0 / (1.0 - discount) * found.mean_change"),
    ("planning/tables.py", "(table >= n_actions)", "(table > n_actions)"),
    ("planning/tables.py", "np.where(task.available, 0.0, weights)", "np.zeros_like(weights)"),
    ("planning/tables.py", "task.action_names.number(actions[a], \"the policy's action\")", "a"),
]  # fmt: skip
AGENTS: list[Mutant] = [
    ("agents/ucmnlk.py", "np.minimum(2.0 * self.beta(state)", "np.minimum(self.beta(state)"),
    ("agents/ucmnlk.py", "np.minimum(2.0 * self.beta(state) * state.model.max_norm, 2.0)",
     "np.minimum(2.0 * self.beta(state) * state.model.max_norm, 1.0)"),
    ("agents/ucmnlk.py", "rule * sqrt(dimension)", "rule * dimension"),
    ("agents/ucmnlk.py", "/ (1.0 - self.gamma)) ** 2", "/ (1.0 - self.gamma))"),
    ("agents/ucmnlk.py", "state.k / (1.0 - self.gamma)", "state.k"),
    ("agents/ucmnlk.py", "log(task.n_states * state.k", "log(state.k"),
    ("agents/ucmnlk.py", "sqrt(self.features.formal_dimension", "(self.features.formal_dimension"),
    ("agents/ucmnlk.py", "1.0 - 1.0 / (1.0 + self.task.horizon)",
     "1.0 - 1.0 / self.task.horizon"),
    ("agents/ucmnlk.py", "0.5 * log(2.0) + 2.0", "0.5 * log(2.0) + 1.0"),
    ("agents/ucmnlk.py", "return state.k + len(episode.actions)",
     "return state.k + 1"),
    ("agents/ucmnlk.py", "np.minimum(self.beta(state) * state.model.max_norm, 2.0)",
     "np.minimum(2.0 * self.beta(state) * state.model.max_norm, 2.0)"),
    ("agents/ucmnlk.py", "size[0], tie_seed, self.gamma)",
     "size[0], tie_seed, 0.9 * self.gamma)"),
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
    ("agents/ucrl2.py", "c**2 * self.task.sizes", "c * self.task.sizes"),
    ("agents/ucrl2.py", "task.n_states * log(2.0", "task.n_states * log(1.0"),
    ("agents/rlsvi.py", "sqrt(0.5 * horizon**3", "sqrt(0.5 * horizon**2"),
    ("agents/rlsvi.py", "visits / precision", "1.0"),
    ("agents/epsilon_greedy.py", "state.k**-self.decay", "state.k**self.decay"),
    ("agents/rrl_mnl.py", "3.0 * horizon * (beta * model.max_norm) ** 2",
     "2.0 * horizon * (beta * model.max_norm) ** 2"),
    ("agents/ucrl_mnl_plus.py", "SECOND_ORDER: ClassVar[float] = 2.5",
     "SECOND_ORDER: ClassVar[float] = 3.0"),
    ("agents/ucrl_mnl_plus.py", "2.5 * task.units.max_value", "3.0 * task.units.max_value"),
    ("agents/psrl.py", "shape / self.inflation", "shape * self.inflation"),
    ("agents/uc_matrix_rl.py", "self.regularization * np.eye(phi.shape[1])",
     "np.eye(phi.shape[1])"),
]  # fmt: skip
MNL: list[Mutant] = [
    ("mnl/radii.py", "4.0 / (big * sqrt(lam))", "2.0 / (big * sqrt(lam))"),
    ("mnl/radii.py", "0.5 * e.logdet_ratio", "e.logdet_ratio"),
    ("mnl/radii.py", "1.0 / (4.0 * big)", "1.0 / big"),
    ("mnl/radii.py", "1.0 + e.k * e.horizon * e.n_states / d_lam", "1.0 + e.k * e.horizon / d_lam"),
    ("mnl/radii.py", "return max(big, self.constant * big * d * growth)",
     "return self.constant * big * d * growth"),
    ("mnl/online.py", "8.0 * d / self.kappa", "4.0 * d / self.kappa"),
    ("mnl/online.py", "32.0 * size / 3.0", "16.0 * size / 3.0"),
    ("mnl/online.py", "+ 2.0 * sqrt(2.0)", "+ sqrt(2.0)"),
    ("mnl/online.py", "1.25 * lam", "lam"),
    ("mnl/online.py", "sqrt(6.0)", "sqrt(3.0)"),
    ("agents/rrl_mnl.py", "self.kappa / 2.0", "self.kappa"),
    ("mnl/online.py", "log(features.task.max_successors) + 1.0 + size",
     "log(features.task.max_successors) + 2.0 + size"),
    ("mnl/online.py", "48.0 * big**2", "24.0 * big**2"),
    ("mnl/online.py", "1.0 - log(n) / log(PHI_1)", "-log(n) / log(PHI_1)"),
    ("mnl/newton.py", "if ridge == 0.0 and (np.diag(new) < VANISHED * begun).any()", "if False"),
    ("mnl/newton.py", "DECREMENT = 1e-12", "DECREMENT = 1e-2"),
    ("mnl/likelihood.py", "0.5 * regularization * float(theta @ theta)",
     "regularization * float(theta @ theta)"),
    ("mnl/likelihood.py", "(expected - counts) + regularization * theta", "(expected - counts)"),
    ("mnl/likelihood.py", "root.T @ root + np.diag(np.full(d, regularization))", "root.T @ root"),
]  # fmt: skip
KERNELS: list[Mutant] = [
    ("kernels/tabular.py", "free = 1.0 - np.exp(f - radius)", "free = 0.0"),
    ("kernels/tabular.py", "0.25 * value_range", "0.5 * value_range"),
    ("kernels/tabular.py", "left = min(0.5 * radius", "left = min(radius"),
    ("agents/counts.py", "np.maximum(visits, 1.0)", "np.maximum(2.0 * visits, 1.0)"),
    ("kernels/online.py", "- 2.0 * image[u] + centre", "- image[u] + centre"),
    ("kernels/online.py", "ROOT_STEPS = 100", "ROOT_STEPS = 1"),
    ("kernels/planning.py", "if seed % ties ==", "if seed % np.uint64(2) =="),
    ("kernels/planning.py", "total += chance * expected", "total += expected"),
    ("kernels/episodes.py", "        if u < total:\n            return i",
     "        if u <= 0.5 * total:\n            return i"),
    ("kernels/episodes.py", "if uniforms[t, 2] < restart", "if uniforms[t, 2] < 0.5 * restart"),
    ("kernels/model.py", "DECREMENT = 1e-10", "DECREMENT = 1.0"),
    ("kernels/linear.py", "beta * np.sqrt(norm2)", "beta * norm2"),
    ("kernels/ellipsoid.py", "middle = 0.5 * (level + values[u])", "middle = level"),
    ("kernels/ellipsoid.py", "(multiplier >= 0.0 and is_global(", "(is_global("),
]  # fmt: skip
LOGS: list[Mutant] = [
    # Importance sampling, doubly robust, censoring
    ("logs/offpolicy.py", "np.cumprod(each * follow_weights(task, data), axis=1)",
     "each * follow_weights(task, data)"),
    ("logs/offpolicy.py", "weights @ ratio / weights.sum(), 1e-300)", "1.0, 1.0)"),
    ("logs/offpolicy.py", "ratio * (data.rewards - means) / np.sqrt(1.0 - share)",
     "ratio * data.rewards / np.sqrt(1.0 - share)"),
    ("logs/offpolicy.py", "(data.rewards - means) / np.sqrt(1.0 - share)",
     "(data.rewards - means)"),
    ("logs/offpolicy.py", "max(1.0, most - 1.0)", "np.inf"),
    ("logs/offpolicy.py", "np.hstack([np.ones((len(ratio), 1)), ratio[:, :-1]])", "ratio"),
    ("logs/offpolicy.py", "ratio * (data.rewards - of_pair)",
     "before * (data.rewards - of_pair)"),
    ("logs/offpolicy.py", "np.where(data.there | data.left, v[steps, data.states], 0.0)",
     "np.where(data.there, v[steps, data.states], 0.0)"),
    ("logs/value_function.py", "task.discount is not None else v[h + 1]",
     "task.discount is not None else v[h]"),
    ("logs/offpolicy.py", "1.0 / np.maximum(1.0 - share[s], 1e-12)", "1.0"),
    ("logs/offpolicy.py", "PRIOR * gone.sum() / total.sum()) / (total + PRIOR)",
     "PRIOR * gone.sum() / total.sum()) / total"),
    ("logs/offpolicy.py", "PRIOR = 5.0", "PRIOR = 50.0"),
    ("logs/offpolicy.py", "max(weights @ ratio[:, -1] ** 2", "max(weights @ ratio[:, 0] ** 2"),
    ("logs/offpolicy.py", "np.bincount(data.cluster, data.weights * deviation)",
     "data.weights * deviation"),
    ("logs/offpolicy.py", "np.sqrt(data.weights @ deviation**2)",
     "np.sqrt(data.weights**2 @ deviation**2)"),
    ("logs/offpolicy.py", "check_quantile(data, 0.5 + confidence / 2.0)",
     "check_quantile(data, confidence)"),
    ("logs/offpolicy.py", "np.hypot(row[\"standard_error\"], model[\"standard_error\"])",
     "row[\"standard_error\"]"),
    ("logs/offpolicy.py", "data.rewards[i, h] = task_rewards(task, h, data.pairs[i, h], s)",
     "pass"),
    # Values: interval search, shares, several outcomes
    ("logs/value_function.py", "ROUNDS = 12", "ROUNDS = 1"),
    ("logs/value_function.py", "ENOUGH = 0.01", "ENOUGH = 0.5"),
    ("logs/value_function.py", "for share in (1.0, 0.5, 0.25, 0.125):", "for share in (1.0,):"),
    ("logs/value_function.py", "(1.0 - share) * here + share * aim", "here + share * aim"),
    ("logs/behaviour.py", "range(len(here)) if is_adjusted(*scores.shape) else ()", "()"),
    ("logs/value_function.py", "found[: len(theta)] += fitted.ridge_part @ theta", "pass"),
    ("logs/value_function.py", "- cross.T @ (onto @ paid)", ""),
    ("logs/value_function.py", "fitted.bread @ theta + onto @ paid)", "fitted.bread @ theta)"),
    ("logs/value_function.py", "p * (slope - (p * slope).sum(axis=3, keepdims=True))",
     "p * slope"),
    ("logs/value_function.py", "task.discount * v[task.successors] +", "v[task.successors] +"),
    ("logs/value.py", "b * b - square * v[1, 1]", "b * b"),
    ("logs/value.py", "a * b - square * v[0, 1]", "a * b + square * v[0, 1]"),
    ("logs/value.py", "np.array([1.0, -a / b]) / b", "np.array([1.0, a / b]) / b"),
    ("logs/value.py", "centre.occupancy[(visits == 0) & (task.sizes > 1)]",
     "centre.occupancy[(visits == 0)]"),
    # The cautious plan
    ("logs/planning.py", "float(centre.slope @ w) + z * np.sqrt(2.0) * error",
     "float(centre.slope @ w) + z * error"),
    ("logs/planning.py", "below = float(centre.slope @ w) + z", "below = z"),
    ("logs/planning.py", "ENLARGED = 3.0", "ENLARGED = 1.0"),
    ("logs/planning.py", "MATTERS = 0.1", "MATTERS = 10.0"),
    ("logs/planning.py", "REPLIES = 8", "REPLIES = 0"),
    ("logs/planning.py", "z = special.stdtrit(best.function.degrees(best.centre), confidence)",
     "z = special.ndtri(confidence)"),
    ("logs/rewards.py", "np.where(rows > 0.0, rows, free)", "free"),
    ("logs/planning.py", "if ahead + behind >", "if ahead >"),
    ("logs/planning.py", "c.centre.value + c.centre.slope @ w - z", "c.centre.value - z"),
    # Goodness of fit
    ("logs/goodness.py", "- fitted.regularization * fitted.theta", ""),
    ("logs/goodness.py", "(fitted.theta + score @ inverse)", "np.tile(fitted.theta, (size, 1))"),
    ("logs/goodness.py", "len(cells.names) - rank, 0)", "len(cells.names), 0)"),
    ("logs/goodness.py", "left -= cross @ inverse @ cross.T", "left -= 0.0 * cross @ cross.T"),
    ("logs/goodness.py", "p_value = (1 + beaten) / (1 + replicates)",
     "p_value = beaten / replicates"),
    ("logs/goodness.py", "ENOUGH = 5.0", "ENOUGH = 1.0"),
    ("logs/goodness.py", "+ ridge * np.diag", "+ 0.0 * np.diag"),
    # Predictions, effects, information criteria, ridge
    ("mnl/fitted.py", "return p * others * error, low, high", "return p * error, low, high"),
    ("logs/effects.py", "x - np.repeat(mean, sizes, axis=0)", "x"),
    ("logs/effects.py", "statistic = max(2.0 * (model.llf - smaller.llf), 0.0)",
     "statistic = max(model.llf - smaller.llf, 0.0)"),
    ("logs/effects.py", "model.fitted.quantile(confidence)", "1.0"),
    ("logs/fit.py", "Choices(of.indptr, x, counts, visits, lam)",
     "Choices(of.indptr, x, counts, visits, 0.5 * lam)"),
    ("mnl/fitted.py", "return 2.0 * (len(self.fitted.theta) - self.llf)",
     "return len(self.fitted.theta) - 2.0 * self.llf"),
    ("mnl/fitted.py", "len(self.fitted.theta) * float(np.log(self.nobs))",
     "2.0 * len(self.fitted.theta) * float(np.log(self.nobs))"),
    ("mnl/fitted.py", "return self.n_clusters - 1.0 if", "return self.n_clusters - 2.0 if"),
    ("mnl/fitted.py", "special.stdtrit(degrees, 0.5 + level / 2.0)",
     "special.ndtri(0.5 + level / 2.0)"),
    ("mnl/fitted.py", "return self.cluster_influence.T @ self.cluster_influence + self.ridge_part",
     "return self.cluster_influence.T @ self.cluster_influence"),
    ("mnl/clusters.py", "return 1.0 / np.sqrt(np.where(share < WHOLE, 1.0 - share, 1.0))",
     "return 1.0 / np.where(share < WHOLE, 1.0 - share, 1.0)"),
    ("mnl/clusters.py", "scores * np.sqrt(n / (n - 1.0)), []", "scores + 0.0, []"),
    ("mnl/clusters.py", "visits[:, situation] * p)",
     "visits[:, situation])"),
    # Rewards from columns
    ("logs/rewards.py", "root = np.sqrt(np.where(free, 1.0 - leverage, 1.0))",
     "root = np.ones_like(leverage)"),
    ("logs/rewards.py", "square = np.where(some, square, self.weight * typical)", "pass"),
    ("logs/rewards.py", "share.data = clusters.adjust_means(share.data)",
     "share.data = np.ones_like(share.data)"),
    ("logs/rewards.py", "own, 0.0) @ outcome.bread)",
     "(), 0.0) @ outcome.bread)"),
    ("logs/rewards.py", "rows.weight * e * f) for f", "e * f) for f"),
    # Triple effects
    # Rewards from choices
    ("logs/dynamic_choice.py", "scores = direct + gamma * (matrix @ dv)",
     "scores = direct + matrix @ dv"),
    ("logs/dynamic_choice.py", "gamma * (matrix.T @ counts) - visits",
     "matrix.T @ counts - visits"),
    ("logs/dynamic_choice.py", "hessian[:, m:] += dv[following, :m]",
     "hessian[:, m:] -= dv[following, :m]"),
    ("logs/reward_model.py", "(len(sums) / (len(sums) - 1.0))", "1.0"),
    ("logs/reward_model.py", "jacobian[:m] = -found.hessian",
     "jacobian[:m, :m] = -found.hessian[:, :m]"),
    ("logs/reward_model.py", "parts.append(pd.DataFrame(moves, list(model.log.clusters)))", "pass"),
    ("logs/reward_model.py", "elif kind == \"classical\":", "elif kind == \"robust\":"),
    ("logs/reward_model.py", "* np.outer(free, free)", "* np.outer(free | True, free | True)"),
    ("logs/reward_model.py", "return (*names, problem.discount), problem",
     "return names, problem"),
]  # fmt: skip
STATIONARY = "planning/test_infinite_horizon.py"
VALUES = "logs/test_value.py logs/test_infinite_horizon.py"
TESTS = {
    "planning/induction.py": "planning/test_planning.py mdp/test_units.py agents/test_rrl_mnl.py"
    " logs/test_cautious.py::test_the_same_in_other_units logs/test_logs.py",
    "planning/optimum.py": f"planning/test_planning.py {STATIONARY}",
    "planning/policy_iteration.py": STATIONARY,
    "planning/stationary.py": f"{STATIONARY} logs/test_infinite_horizon.py",
    "planning/infinite_horizon.py": f"{STATIONARY} logs/test_infinite_horizon.py"
    " agents/test_ties.py agents/test_ucmnlk.py",
    "planning/tables.py": "planning/test_planning.py play/test_policy.py play/test_names.py"
    " mdp/test_action_sets.py",
    "agents/ucmnlk.py": "agents/test_ucmnlk.py agents/test_ucrl_mnl_l1.py",
    "agents/counts.py": "agents/test_tabular_learners.py",
    "agents/rrl_mnl.py": "agents/test_rrl_mnl.py agents/test_orrl_mnl.py",
    "mnl/radii.py": "mnl/test_radii.py",
    "mnl/online.py": "mnl/test_online.py",
    "mnl/newton.py": "mnl/test_fit.py",
    "mnl/likelihood.py": "mnl/test_likelihood.py",
    "kernels/tabular.py": "kernels/test_tabular.py agents/test_ucbvi.py agents/test_ucrl2.py"
    " agents/test_ucrl_mnl_lr.py",
    "kernels/online.py": "mnl/test_online.py",
    "kernels/planning.py": "kernels/test_planning.py planning/test_planning.py agents/test_ties.py",
    "kernels/episodes.py": "play/test_simulate.py play/test_rollouts.py play/test_streams.py",
    "kernels/model.py": "mnl/test_model.py mnl/test_likelihood.py mnl/test_fit.py",
    "kernels/linear.py": "agents/test_ucrl_vtr.py",
    "kernels/ellipsoid.py": "kernels/test_ellipsoid.py",
    "mnl/fitted.py": "logs/test_by_hand.py logs/test_transitions.py logs/test_steps.py"
    " logs/test_value.py",
    "mnl/clusters.py": "logs/test_by_hand.py logs/test_transitions.py logs/test_agreement.py"
    " logs/test_rewards.py logs/test_large_logs.py",
    "logs/offpolicy.py": "logs/test_by_hand.py logs/test_offpolicy.py",
    "logs/value_function.py": f"logs/test_by_hand.py logs/test_rewards.py {VALUES}"
    " logs/test_cautious.py::test_draws_are_errors_of_the_estimate",
    "logs/value.py": f"logs/test_by_hand.py logs/test_rewards.py {VALUES}",
    "logs/planning.py": "logs/test_by_hand.py logs/test_cautious.py",
    "logs/goodness.py": "logs/test_by_hand.py logs/test_goodness.py",
    "logs/rewards.py": "logs/test_by_hand.py logs/test_rewards.py",
    "logs/effects.py": "logs/test_by_hand.py logs/test_transitions.py logs/test_logs.py",
    "logs/fit.py": "logs/test_by_hand.py logs/test_transitions.py logs/test_logs.py",
    "logs/dynamic_choice.py": "logs/test_dynamic_choice.py logs/test_fit_rewards.py",
    "logs/reward_model.py": "logs/test_fit_rewards.py",
}
"""The tests of a file; of others those of its name, agents/ucbvi.py: agents/test_ucbvi.py."""
MUTANTS = [*PLANNING, *AGENTS, *MNL, *KERNELS, *LOGS]


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


class ChangedSource(importlib.abc.MetaPathFinder):
    """Finds one module, whose source is another text than that of its file."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None and spec.origin is not None
        code = compile(self.text, spec.origin, "exec")
        spec.loader.get_code = lambda _: code  # type: ignore[union-attr]
        return spec


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
    return passes(tests_of(file), "upriver." + file.removesuffix(".py").replace("/", "."), text)


def passes(tests: Iterable[str], module: str, text: str) -> bool:
    """Return whether tests pass in a process of their own, where a module has another text."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    signal.alarm(SECONDS)  # a change may make a loop run without end, which counts as noticed
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for name in list(sys.modules):  # all is imported again but the kernels
        if name.startswith(("tests.", "upriver.")) and not name.startswith("upriver.kernels"):
            del sys.modules[name]
    for name in [name for name in vars(upriver) if name in upriver.WHERE]:
        delattr(upriver, name)
    sys.meta_path.insert(0, ChangedSource(module, text))
    os._exit(pytest.main([*OPTIONS, *tests]))


def main() -> None:
    words = sys.argv[1:]
    chosen = [m for m in MUTANTS if not words or any(w in text for w in words for text in m[:2])]
    needed = [m[0] for m in chosen if not m[0].startswith("kernels/")]
    tests = dict.fromkeys(test for file in needed for test in tests_of(file))
    if tests and not passes(tests, "", ""):
        sys.exit("the tests fail without a change")
    alive = 0
    for mutant in chosen:
        lives = survives(mutant)
        alive += lives
        print("survived" if lives else "noticed ", *mutant, sep="  ", flush=True)
    print(f"{len(chosen) - alive} of {len(chosen)} changes were noticed")


if __name__ == "__main__":
    main()
