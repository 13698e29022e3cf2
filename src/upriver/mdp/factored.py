"""Factored problems: the state is a vector of small integers, and no state is ever listed.

Component i of the next state is a multinomial-logit choice among its values. The function
kind(x, a, i) says which row of log-odds applies, so that components share parameters:

    P(x' | x, a) = prod_i softmax(logits[kind(x, a, i)])[x'_i].

A joint MNL whose logits add up over components is this product, with the same theta. So the
likelihood (2) and its derivatives are sums over components, and the counts of (kind, value) are all
that they need.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from functools import cached_property, partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from upriver.checks import (
    WHOLE,
    Array,
    as_float,
    check_function,
    check_kinds,
    format_value,
    kernel_view,
    positive_integer,
    read_only_copy,
)
from upriver.display import Card, add_repr
from upriver.kernels import factored as kernels
from upriver.mdp import archive
from upriver.mdp.building import from_triples
from upriver.mdp.finite import FiniteMDP
from upriver.mdp.names import Names, check_names
from upriver.mdp.validation import check_discount

N_TRIED = 100
"""Random states on which the functions of a problem are tried out."""
MAX_TABLE = 2**24
"""Entries S * A * S of the largest problem that `to_finite` lists."""
MAX_LOGITS = 10**8
FUNCTIONS = {"kind", "reward", "allowed"}
"""The fields that a file does not hold."""


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class FactoredMDP:
    """A problem whose state is a vector of n small integers; `task` is what a learner may see.

    The functions are plain Python functions of x, an array of n integers which they must not
    change, and integers. They are compiled by numba, and must work for every vector of values.

    Parameters
    ----------
    start : (n,) integers
        The state in which an episode begins.
    n_values : int or (n,) integers
        How many values each component has; they are 0, 1, 2, ...
    actions : int or sequence
        How many actions there are, or their names.
    kind : function of (x, a, i)
        The row of log-odds, from 0 to n_kinds - 1, that component i follows.
    n_kinds : int
    reward : function of (x, a) or (x, a, x2)
    horizon : int or None
        Steps of an episode; None is an infinite horizon, with a discount.
    logits : (n_kinds, m) array, optional
        Log-odds of the values, m the largest n_values; -inf is impossible. None: not known.
    features : (n_kinds, m, d) array, optional
        varphi of a kind and a value, by which a learner shares parameters between kinds. The
        default is one parameter for each kind and each possible value but the first.
    name : str
    allowed : function of (x, a), optional
        Whether state x has action a; by default every state has all actions.
    discount : float, optional
        In [0, 1), with horizon None.
    support : (n_kinds, m) array of bool, optional
        Which values are possible, where the logits are not known; all by default.
    names : sequence of str, optional
        One for each parameter.
    """

    start: Any
    n_values: Any
    actions: Any
    kind: Callable[..., Any]
    n_kinds: int
    reward: Callable[..., Any]
    horizon: int | None
    logits: Any = None
    features: Any = None
    name: str = "factored"
    _: KW_ONLY
    allowed: Callable[..., Any] | None = None
    discount: float | None = None
    support: Any = None
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        put = partial(object.__setattr__, self)
        start, n_values = as_whole("start", self.start), as_whole("n_values", self.n_values)
        if (
            start.ndim != 1 or not start.size or n_values.shape not in {(1,), start.shape}
            or not ((start >= 0) & (start < n_values)).all()
        ):  # fmt: skip
            raise ValueError(
                f"start has shape {start.shape} and n_values {n_values.shape}; start must hold a "
                "value from 0 to n_values - 1 of each component, n_values one number or one of each"
            )
        put("start", start)
        put("n_values", read_only_copy(np.broadcast_to(n_values, start.shape)))
        shape = positive_integer("n_kinds", self.n_kinds), int(n_values.max())
        if shape[0] * shape[1] > MAX_LOGITS:
            raise ValueError(f"n_kinds and n_values are {shape}; at most {MAX_LOGITS:,} are listed")
        put("n_kinds", shape[0])
        actions = range(self.actions) if isinstance(self.actions, WHOLE) else self.actions
        if not hasattr(actions, "__len__") or not len(actions):
            given = format_value(self.actions)
            raise ValueError(f"actions is {given}; it must be a number above 0 or a list of names")
        put("actions", check_names("actions", actions, len(actions)))
        if self.horizon is not None:
            put("horizon", positive_integer("horizon", self.horizon))
        elif self.discount is None:
            raise ValueError("horizon and discount are None; one of them must be given")
        put("discount", check_discount(self.horizon, self.discount))
        if self.logits is not None:
            put("logits", self._check_logits(self.logits))
            put("support", self.logits > -np.inf)
        support = np.ones(shape, bool) if self.support is None else np.asarray(self.support)
        if support.shape != shape or support.dtype != bool or not support.any(axis=1).all():
            raise ValueError(f"support must be of shape {shape} and bool, with a True in each row")
        put("support", read_only_copy(support))
        if self.features is not None:
            features = as_float("features", self.features)
            if features.shape[:2] != shape or features.ndim != 3 or not np.isfinite(features).all():
                raise ValueError(
                    f"features have shape {features.shape}; they must be finite and {shape} + (d,)"
                )
            put("features", read_only_copy(features))
        put("names", check_names("names", self.names, self.dimension))
        self._try_functions()

    @property
    def n_components(self) -> int:
        """n, the length of a state."""
        return len(self.start)

    @property
    def weight(self) -> float:
        """What a reward counts less with each step: the discount, or 1."""
        return 1.0 if self.discount is None else self.discount

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return len(self.actions)

    @cached_property
    def action_names(self) -> Names:
        """The names of the actions."""
        return Names("action", len(self.actions), self.actions)

    @cached_property
    def matrix(self) -> Array:
        """(r, d) the features of the r possible (kind, value), in the order of `support`."""
        if self.features is not None:
            return self.features[self.support]
        sizes = self.support.sum(axis=1)
        return np.delete(np.eye(sizes.sum()), np.cumsum(sizes) - sizes, axis=1)

    @property
    def dimension(self) -> int:
        """d, the number of parameters."""
        return self.matrix.shape[1]

    @property
    def parameter_names(self) -> list[str]:
        """One name for each parameter."""
        if self.names is not None:
            return list(self.names)
        if self.features is not None:
            return [f"theta[{j}]" for j in range(self.dimension)]
        return [f"kind {k}: {v}" for k, v in np.argwhere(self.support)[self.matrix.argmax(axis=0)]]

    @cached_property
    def probabilities(self) -> Array:
        """(n_kinds, m) probability of each value of a component of each kind."""
        if self.logits is None:
            raise ValueError(f"{self.name} has no logits, so nothing can be drawn from it")
        weights = np.exp(self.logits - self.logits.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    @cached_property
    def cumulative(self) -> Array:
        """(n_kinds, m) cumulative probabilities for draws, see `kernels.factored`."""
        last = np.cumsum(self.support, axis=1) == self.support.sum(axis=1, keepdims=True)
        return np.where(last, 2.0, np.cumsum(self.probabilities, axis=1))

    def task(self) -> FactoredMDP:
        """Return what a learner may see: all but the logits. Impossible values stay known."""
        return self._with_logits(None)

    def with_theta(self, theta: ArrayLike) -> FactoredMDP:
        """Return the problem whose log-odds are those of a parameter (d,)."""
        values = as_float("theta", theta, shapes=[(self.dimension,)])
        logits = np.full(self.support.shape, -np.inf)
        logits[self.support] = self.matrix @ values
        return self._with_logits(self._check_logits(logits))

    def _with_logits(self, logits: Array | None) -> FactoredMDP:
        other = copy.copy(self)  # everything else has been checked
        for name in ("probabilities", "cumulative"):
            vars(other).pop(name, None)
        object.__setattr__(other, "logits", logits)
        return other

    def kinds(self, states: ArrayLike, actions: ArrayLike) -> Array:
        """Return (T, n) the kind of each component in states (T, n) after actions (T,), numbers."""
        before, taken = np.array(self.as_states("states", states)), as_whole("actions", actions)
        if taken.shape != (len(before),) or ((taken < 0) | (taken >= self.n_actions)).any():
            raise ValueError(
                f"actions must be {len(before)} numbers from 0 to {self.n_actions - 1}, one for "
                "each state"
            )
        found, what = np.empty(before.shape, np.int64), (self.functions[0], self.n_kinds)
        self.run(kernels.find_kinds, *what, before, np.array(taken), found)
        return found

    def count(self, states: ArrayLike, actions: ArrayLike, next_states: ArrayLike) -> Array:
        """Return how often each possible (kind, value) was seen in T transitions.

        The transitions are states (T, n), the numbers of actions (T,), and next_states (T, n). The
        counts are those that `fit_mnl` takes with `features.components`.
        """
        kinds, after = self.kinds(states, actions), self.as_states("next_states", next_states)
        if kinds.shape != after.shape:
            raise ValueError(f"next_states has shape {after.shape}, states {kinds.shape}")
        for t, i in np.argwhere(~self.support[kinds, after])[:1]:
            x = np.asarray(states)[t]
            self.raise_fault(kernels.BAD_VALUE, kinds[t, i], i, after[t, i], x)
        cells = (kinds * self.support.shape[1] + after).ravel()
        seen = np.bincount(cells, minlength=self.support.size)[self.support.ravel()]
        return np.append(seen, np.zeros(self.n_extra_rows))

    @property
    def n_extra_rows(self) -> int:
        """Rows that `features.components` has besides: more values than kinds need states too."""
        return max(self.support.shape[1] - self.n_kinds, 0)

    def to_finite(self) -> FiniteMDP:
        """Return the same problem with every state listed, named by tuples; for small ones."""
        n_states = float(np.prod(self.n_values.astype(float)))
        if n_states**2 * self.n_actions > MAX_TABLE:
            raise ValueError(
                f"{self.name} has {n_states:.4g} states and {self.n_actions} actions; to_finite "
                f"lists at most {MAX_TABLE:,} triples"
            )
        states = np.stack(np.unravel_index(np.arange(int(n_states)), self.n_values), axis=1)
        s, a = np.divmod(np.arange(len(states) * self.n_actions), self.n_actions)
        if self.allowed is not None:
            calls = list(zip(states[s], a, strict=True))
            has = np.array(try_function("allowed", self.allowed, calls, True), bool)
            s, a = s[has], a[has]
            for x in np.delete(states, s, axis=0)[:1]:
                self.raise_fault(kernels.NO_ACTION, 0, 0, 0, x)
        kinds, chances = self.kinds(states[s], a), np.ones((len(s), 1))
        for i, size in enumerate(self.n_values):
            for t in np.flatnonzero(self.support[kinds[:, i], size:].any(axis=1))[:1]:
                self.raise_fault(kernels.BAD_VALUE, kinds[t, i], i, size, states[s[t]])
            one = self.probabilities[kinds[:, i], :size]
            chances = (chances[:, :, None] * one[:, None, :]).reshape(len(s), -1)
        row, s2 = np.nonzero(chances)
        calls = zip(states[s], a, strict=True)
        if self.takes_next_state:
            calls = zip(states[s[row]], a[row], states[s2], strict=True)
        reward = np.array(try_function("reward", self.reward, list(calls), False), np.float64)
        names: dict[str, Any] = {"name": self.name, "states": list(map(tuple, states.tolist()))}
        return from_triples(
            s[row] * self.n_actions + a[row], s2, chances[row, s2],
            reward if self.takes_next_state else reward[row], (len(states), self.n_actions),
            self.horizon, np.all(states == self.start, axis=1).astype(float),
            names | {"actions": self.actions, "discount": self.discount},
        )  # fmt: skip

    @check_kinds
    def save(self, path: str | Path) -> None:
        """Write the numbers and names to an .npz file; the functions are not part of it."""
        names = [x.name for x in fields(self) if x.name not in FUNCTIONS]
        archive.save_object(path, "factored mdp", {x: getattr(self, x) for x in names})

    @staticmethod
    @check_kinds
    def load(path: str | Path, kind: Any, reward: Any, allowed: Any = None) -> FactoredMDP:
        """Read the numbers that `save` wrote, for the functions that the problem had."""
        numbers = archive.load_object(path, "factored mdp", dict)
        return FactoredMDP(kind=kind, reward=reward, allowed=allowed, **numbers)

    def card(self) -> Card:
        facts: dict[str, Any] = {"components": self.n_components, "actions": self.n_actions}
        limit = "horizon" if self.discount is None else "discount"
        facts |= {"kinds": self.n_kinds, "parameters": self.dimension, limit: getattr(self, limit)}
        facts["logits"] = "unknown" if self.logits is None else "known"
        return Card(facts, of=self.name, brief=self.name)

    @cached_property
    def takes_next_state(self) -> bool:
        """Whether the reward depends on the next state."""
        return callable(self.reward) and len(signature(self.reward).parameters) == 3

    @cached_property
    def functions(self) -> tuple[Any, Any, Any]:
        """(kind, reward, allowed), compiled; the reward takes (x, a, x2)."""
        kind, reward = (kernels.compile_function(x) for x in (self.kind, self.reward))
        if not self.takes_next_state:
            reward = kernels.with_next_state(reward)
        return kind, reward, kernels.compile_function(self.allowed or kernels.allow_all)

    def as_states(self, name: str, states: Any) -> Array:
        """Return states (T, n), each value checked."""
        given = as_whole(name, states)
        if given.ndim != 2 or given.shape[1] != self.n_components:
            raise ValueError(f"{name} has shape {given.shape}; it must be (T, {self.n_components})")
        for t, i in np.argwhere((given < 0) | (given >= self.n_values))[:1]:
            raise ValueError(
                f"{name} holds the value {given[t, i]} of component {i}; its values are 0 to "
                f"{self.n_values[i] - 1}"
            )
        return given

    def step(self, x: Array, action: Any, uniforms: Array) -> tuple[Array, float]:
        """Return the next state and the reward; uniforms (n,) draw the components."""
        a = positive_integer("action", action, least=0, most=self.n_actions - 1)
        if not self.functions[2](x, a):
            raise ValueError(f"action is {a}; state {x.tolist()} does not have it")
        after, rule, sizes = x.copy(), (self.n_actions, 0), kernel_view(self.n_values)
        play = kernels.compile_kernels(*self.functions, kernels.no_base)[-1]
        of_step = after, x.copy(), a, 0, 1, uniforms
        return after, self.run(play, *of_step, rule, sizes, 1.0, self.cumulative)

    def run(self, kernel: Any, *arguments: Any) -> Any:
        """Run a loop of `kernels.factored`; raise a ValueError for what it finds wrong."""
        fault = np.zeros(4 + self.n_components, np.int64)
        result = kernel(*arguments, fault)
        if fault[0]:
            self.raise_fault(*fault[:4].tolist(), x=fault[4:])
        return result

    def raise_fault(self, what: int, first: Any, second: Any, value: Any, x: Array) -> None:
        """Raise a ValueError for what is wrong in state x, see `kernels.factored`."""
        at, actions = f"in state {format_value(x.tolist())}", f"0 to {self.n_actions - 1}"
        raise ValueError({
            kernels.BAD_KIND: f"kind returns {value} for action {first} and component {second} "
            f"{at}; it must be from 0 to {self.n_kinds - 1}",
            kernels.BAD_VALUE: f"component {second} takes the value {value} by kind {first} {at}, "
            "which its n_values or the support of the kind do not allow",
            kernels.BAD_REWARD: f"reward of action {first} is not finite {at}",
            kernels.BAD_BASE: f"base returns {value} {at}; actions are {actions}",
            kernels.NO_ACTION: f"allowed leaves no action {at}; it must leave one",
        }[what])  # fmt: skip

    def _check_logits(self, logits: Any) -> Array:
        table, shape = as_float("logits", logits), (self.n_kinds, int(self.n_values.max()))
        possible = table > -np.inf  # False for nan
        if table.shape != shape or not (table < np.inf).all() or not possible.any(axis=1).all():
            raise ValueError(
                f"logits have shape {table.shape}; they must be finite numbers or -inf, of shape "
                f"{shape}, with a finite one in each row"
            )
        return read_only_copy(table)

    def draw_states(self) -> Array:
        """Return the start and random states, on which functions are tried out."""
        n, size = self.n_components, max(N_TRIED, min(2 * self.n_actions, 10**5 // len(self.start)))
        drawn = np.random.default_rng(0).integers(self.n_values, size=(size, n))
        return np.vstack([self.start, drawn])

    def _try_functions(self) -> None:
        """Try the functions out, with each action in turn."""
        pairs = [(x, t % self.n_actions) for t, x in enumerate(self.draw_states())]
        if self.allowed is not None:
            check_function("allowed", self.allowed, "x", "a")
            has = try_function("allowed", self.allowed, pairs, True)
            pairs = [pair for pair, has_action in zip(pairs, has, strict=True) if has_action]
        check_function("kind", self.kind, "x", "a", "i")
        calls = [(x, a, i) for x, a in pairs for i in range(self.n_components)]
        for (x, a, i), k in zip(calls, try_function("kind", self.kind, calls, True), strict=True):
            if not 0 <= k < self.n_kinds:
                self.raise_fault(kernels.BAD_KIND, a, i, k, x)
        check_function("reward", self.reward, *("x", "a", "x2")[: 2 + self.takes_next_state])
        given = [(x, a, x) if self.takes_next_state else (x, a) for x, a in pairs]
        for (x, a), r in zip(pairs, try_function("reward", self.reward, given, False), strict=True):
            if not np.isfinite(r):
                self.raise_fault(kernels.BAD_REWARD, a, 0, 0, x)


def as_whole(name: str, values: Any) -> Array:
    """Return an array of whole numbers."""
    given = as_float(name, values)
    if not ((given == np.floor(given)) & (np.abs(given) < 2**31)).all():
        raise ValueError(f"{name} is {format_value(values)}; it must hold whole numbers")
    return read_only_copy(given, np.int64)


def try_function(name: str, function: Any, calls: list[Any], whole: bool) -> list[Any]:
    """Return what a function gives for tuples of arguments, compiled with checks of indices.

    Raises a ValueError of one sentence where it cannot be compiled, reads past the end of an array,
    fails, or returns something else than a number; a whole one with `whole`. Arrays cannot be
    written to, so a function that changes the state cannot be compiled.
    """
    found = []
    for given in calls:
        arguments: Any = [np.array(x) if np.ndim(x) else int(x) for x in given]
        arguments[0].flags.writeable = False
        try:
            found.append(kernels.compile_function(function, True)(*arguments))
        except kernels.CompileError as error:
            lines = [line.strip(" >") for line in str(error).splitlines()[1:] if line.strip(" >")]
            reason = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
            why = "it must not change the state: " if "setitem" in reason else ""
            raise ValueError(f"{name} cannot be compiled by numba: {why}{reason}") from None
        except Exception as error:
            call = ", ".join(format_value(np.asarray(x).tolist()) for x in given)
            past = isinstance(error, IndexError)
            what = "reads past the end of an array" if past else f"fails: {error!r}"
            raise ValueError(f"{name}({call}) {what}") from error
        if not isinstance(found[-1], int | bool if whole else int | bool | float):
            kind = "a whole number, or True or False" if whole else "a number"
            raise ValueError(f"{name} returns {format_value(found[-1])}; it must return {kind}")
    return found
