"""Checks of input. Each returns the input in canonical types or raises one clear sentence.

A sentence names the field, the first offending index, the value and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial, wraps
from inspect import signature
from os import PathLike
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Support = tuple[Array, Array]
"""Reachable sets in compressed form: (indptr, successors)."""

new_tuple = tuple.__new__
"""new_tuple(Kind, fields) makes the named tuple Kind(*fields) in a third of the time. It is meant
for the tuples that are made in every episode."""

TINY = 5e-324
"""The smallest floating-point number above 0."""
WHOLE = int | np.integer
NUMBER = WHOLE | float | np.floating
"""What NumPy and SciPy compute with; a Fraction they would refuse without a sentence."""

Function = TypeVar("Function", bound=Callable[..., Any])


def with_article(noun: str) -> str:
    """Return a noun with its article: a Task, an Experiment."""
    return f"an {noun}" if noun[0].lower() in "aeio" else f"a {noun}"


def describe_kind(name: str, value: Any, kind: str) -> str:
    """Return the sentence for a value of another kind; an MDP in place of its task has a hint."""
    is_mdp = kind == "a Task" and hasattr(value, "true_task")
    allowed = "use mdp.task()" if is_mdp else f"it must be {kind}"
    return f"{name} is {with_article(type(value).__name__)}; {allowed}"


def check_instance(name: str, value: Any, kind: type) -> Any:
    """Return the value if it is of that kind."""
    if not isinstance(value, kind):
        raise TypeError(describe_kind(name, value, with_article(kind.__name__)))
    return value


def is_hashable(value: Any) -> bool:
    with suppress(TypeError):
        hash(value)
        return True
    return False


KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("a whole number", lambda x: isinstance(x, WHOLE)),
    "float": ("a number", lambda x: isinstance(x, NUMBER)),
    "str": ("text", lambda x: isinstance(x, str)),
    "bool": ("True or False", lambda x: isinstance(x, bool | np.bool_)),
    "Path": ("a path", lambda x: isinstance(x, str | PathLike)),
    "None": ("None", lambda x: x is None),
    "Callable": ("a function", callable),
    "Mapping": ("a mapping", lambda x: isinstance(x, Mapping)),
    "Hashable": ("a hashable value", is_hashable),
    "Sequence[str]": (
        "a list of text",
        lambda x: isinstance(x, Iterable) and hasattr(x, "__len__") and not isinstance(x, str)
        and getattr(x, "ndim", 1) > 0 and all(isinstance(each, str) for each in x),
    ),
}  # fmt: skip
"""The words for a kind of argument, and its test, by what annotations call it."""
CLASSES = (
    "FiniteMDP", "FactoredMDP", "Task", "Features", "TransitionModel", "FittedMNL", "Plan",
    "Policy", "Checkpoint", "UCRLMNL", "Experiment",
)  # fmt: skip
"""Classes of this package, which this module cannot import."""


def check_kinds(function: Function) -> Function:
    """Return the function with a check that refuses arguments of another kind than annotated.

    It is meant for public functions: what is not of the right kind would fail deep inside, without
    a sentence. What is checked are the kinds in `KINDS` and `CLASSES`; an annotation that has
    another alternative is not checked, and the ranges of numbers are checked elsewhere.
    """
    annotations = function.__annotations__
    rules = {name: rule for name, x in annotations.items() if (rule := read_annotation(str(x)))}
    names = function.__code__.co_varnames[: function.__code__.co_argcount]  # the positional ones

    @wraps(function)
    def checked(*args: Any, **given: Any) -> Any:
        for name, value in (*zip(names, args, strict=False), *given.items()):
            if name in rules and not any(fits(value) for _, fits in rules[name]):
                kinds = " or ".join(words for words, _ in rules[name])
                if "number" in kinds:
                    raise ValueError(f"{name} is {format_value(value)}; it must be {kinds}")
                raise TypeError(describe_kind(name, value, kinds))
        return function(*args, **given)

    return checked  # type: ignore[return-value]


def read_annotation(text: str) -> list[tuple[str, Callable[[Any], bool]]]:
    """Return the kinds that an annotation allows; none where one of them is not known."""
    kinds = []
    for part in re.split(r"\s*\|(?![^\[]*\])\s*", text):  # not the | within brackets
        name = part if part in KINDS else part.partition("[")[0]
        if name not in KINDS and name not in CLASSES:
            return []
        kinds.append(KINDS.get(name) or (with_article(name), partial(is_instance_of, name)))
    return kinds


def is_instance_of(name: str, value: Any) -> bool:
    return any(kind.__name__ == name for kind in type(value).__mro__)


def read_only_copy(values: Any, kind: Any = None) -> Array:
    """Return a contiguous copy that cannot be written to; `kernel_view` is for kernels."""
    locked = np.array(values, dtype=kind, order="C", copy=True)[...]
    locked.flags.writeable = False
    return locked


def kernel_view(array: Array) -> Array:
    """Return the writable base of a `read_only_copy`, without copying; kernels only read it.

    Numba would compile every kernel once more for arrays that cannot be written to.
    """
    base = array.base
    if isinstance(base, np.ndarray) and base.flags.writeable and base.shape == array.shape:
        return base
    return array.copy()


def as_float(
    name: str, values: Any, kind: Any = np.float64, shapes: Collection[tuple[int, ...]] = ()
) -> Array:
    """Return an array of numbers, of one of the shapes where they are given; text, complex numbers
    and ragged lists are refused."""
    array = np.empty(0, object)
    with suppress(TypeError, ValueError, OverflowError):
        if np.asarray(values).dtype.kind in ("biuf" if kind is None else "biufO"):
            array = np.ascontiguousarray(values, dtype=kind)
    if array.dtype == object:
        raise ValueError(f"{name} must be an array of numbers without gaps")
    if shapes and array.shape not in shapes:
        allowed = " or ".join(map(str, dict.fromkeys(shapes)))
        raise ValueError(f"{name} has shape {array.shape}; it must be {allowed}")
    return array


def as_labels(name: str, values: Any) -> Array:
    """Return an array of whole numbers or text, which can be compared and ordered."""
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty(0, object)
    if array.dtype.kind not in "biufUSM":
        raise ValueError(f"{name} must hold numbers, or text, and nothing else")
    if array.dtype.kind in "fM" and np.isnan(array).any():
        raise ValueError(f"{name}[{int(np.argmax(np.isnan(array)))}] is missing; fill it in")
    return array


def check_sparse(name: str, matrix: Any) -> Any:
    """Return a copy of a sparse matrix in compressed rows, whose indices are right."""
    from scipy import sparse  # not before it is needed: it would be half of `import upriver`

    try:
        rows = sparse.csr_array(matrix, dtype=np.float64, copy=True)
        rows.check_format(full_check=True)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is no sparse matrix of numbers ({error})") from None
    return rows


def format_value(value: Any) -> str:
    """Return the text of a value as errors show it: one line of at most 80 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def positive_integer(name: str, value: Any, least: int = 1, most: int = 10**10) -> int:
    """Return a whole number between `least` and `most`."""
    if not isinstance(value, WHOLE) or value < least:
        allowed = f"it must be a whole number of at least {least}"
        raise ValueError(f"{name} is {format_value(value)}; {allowed}")
    if value > most:
        raise ValueError(f"{name} is {value}; it must be at most {most}")
    return int(value)


def finite_number(name: str, value: Any, least: float, allowed: str = "") -> float:
    """Return a finite number of at least `least`; `allowed` says that in words."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = np.nan
    if not (number >= least and np.isfinite(number)):
        kind = f"a finite number {allowed}".strip()
        raise ValueError(f"{name} is {format_value(value)}; it must be {kind}")
    return number


def positive_number(name: str, value: Any) -> float:
    """Return a finite number above 0."""
    return finite_number(name, value, TINY, "above 0")


def nonnegative_number(name: str, value: Any) -> float:
    """Return a finite number of at least 0."""
    return finite_number(name, value, 0.0, "of at least 0")


def open_fraction(name: str, value: Any) -> float:
    """Return a number strictly between 0 and 1."""
    if not isinstance(value, NUMBER) or not 0.0 < float(value) < 1.0:
        raise ValueError(f"{name} is {format_value(value)}; it must lie strictly between 0 and 1")
    return float(value)


def check_choice(name: str, value: Any, allowed: Iterable[str]) -> str:
    """Return a word that is one of those allowed."""
    words = list(allowed)
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"{name} is {format_value(value)}; it must be one of {words}")
    return value


def accepts(function: Any, *arguments: str) -> bool:
    """Return whether a function can be called with that many arguments."""
    try:
        signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # some builtins have no signature
        pass
    return True


def check_function(name: str, function: Any, *arguments: str) -> None:
    """Refuse what cannot be called with that many arguments, which errors name."""
    if not accepts(function, *arguments):
        wanted = f"it must be a function of ({', '.join(arguments)})"
        raise TypeError(f"{name} is {format_value(function)}; {wanted}")


def refuse_given(where: str, **arguments: Any) -> None:
    """Refuse arguments that are not None and have no meaning `where` they were given."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name} is {format_value(value)}; it is not for {where}")


def check_seed(seed: Any) -> int:
    """Return a seed as an int; truth values are refused."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed is {format_value(seed)}; it must be a whole number of at least 0")
    return int(seed)
