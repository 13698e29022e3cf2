"""From a formula to columns, without the expanded table: each term is a product of factors.

Of `age:worse`, age belongs to the situation and worse to the move. So a factor is evaluated once
for each situation, or once for each triple (s, a, s'), and only one that mixes both (such as
`I(age > level_next)`) for each row of the expanded table. `Products` multiplies them when asked.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from upriver.checks import Array
from upriver.logs.reading import listed

Table = Mapping[str, Array]
Formula = str | Sequence[str] | Callable[[Table], Table]


class Factor(NamedTuple):
    """A part of terms: `age`, `C(ward)`, `bs(age, df=4)`."""

    text: str
    """As a formula has it; empty: the whole of a formula that is no product."""
    reduced: bool
    """Whether the reference category is left out."""
    spec: Any
    """formulaic's, which makes the same columns of other tables."""
    names: tuple[str, ...]


class Column(NamedTuple):
    """A column of the model: a product of columns of factors, times a number."""

    name: str
    term: str
    parts: tuple[tuple[int, int], ...]
    """(factor, its column) each."""
    scale: float


class Recipe(NamedTuple):
    """How a formula makes columns of a table."""

    factors: tuple[Factor, ...]
    columns: tuple[Column, ...]

    def rows(self, formula: Formula, table: Table, keep: Array) -> Array:
        """(n, len(keep)) columns of an expanded table."""
        used = {f for j in keep for f, _ in self.columns[j].parts}
        cells = {f: evaluate(formula, self.factors[f], table)[0] for f in used}
        n = len(next(iter(table.values())))
        made = np.empty((n, len(keep)))
        for i, j in enumerate(keep):
            made[:, i] = self.columns[j].scale
            for f, c in self.columns[j].parts:
                made[:, i] *= cells[f][:, c]
        return made


def mentions(formula: Formula) -> Callable[[str], bool]:
    """Whether a formula uses a column of a name."""
    if isinstance(formula, str):
        return lambda name: bool(re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", formula))
    if callable(formula):
        return lambda name: True
    return lambda name: name in formula


def by_step(formula: Formula, step: str, steps: Sequence[Any]) -> Formula:
    """The formula with a coefficient for every step, instead of one for all."""
    if isinstance(formula, str):
        return f"({formula}):C({step})"

    def columns(table: Table) -> Table:
        made = formula(table) if callable(formula) else {c: need(table, c) for c in formula}
        here = {h: need(table, step) == h for h in steps}
        return {f"{c}:{step}[{h}]": np.where(here[h], made[c], 0.0) for c in made for h in steps}

    return columns


def need(table: Table, name: str) -> Array:
    if name not in table:
        raise ValueError(f"there is no column {name!r}; it must be one of {listed(list(table))}")
    return table[name]


def evaluate(formula: Formula, factor: Factor, table: Table) -> tuple[Array, Factor]:
    """((n, k) columns of a factor, the factor with what it learned from the table)."""
    if factor.text and not isinstance(formula, str):
        found, names = need(table, factor.text)[:, None], (factor.text,)
    elif callable(formula):
        made = formula(table)
        names = tuple(str(c) for c in made)
        found = stacked(made)
    elif factor.text in table and table[factor.text].dtype.kind in "iuf":
        found, names = table[factor.text][:, None], (factor.text,)
    else:
        wanted = mentions(factor.text)
        mine = {c: x for c, x in table.items() if wanted(c)} or table
        text = factor.text if factor.text in table else f"{{{factor.text}}}"
        made = matrix_of(factor.spec or f"{int(factor.reduced)} + {text}", mine, str(formula))
        keep = [i for i, c in enumerate(made.columns) if c != "Intercept"]
        found = made.to_numpy(np.float64)[:, keep]
        names = tuple(str(made.columns[i]) for i in keep)
        factor = factor._replace(spec=made.model_spec)
    return finite(found, names), factor._replace(names=names)


def stacked(made: Table) -> Array:
    try:
        return np.column_stack([np.asarray(x, np.float64) for x in made.values()])
    except (TypeError, ValueError):
        raise ValueError(
            "columns of a model without a formula must be numbers of one length; a formula makes "
            "columns of words"
        ) from None


def matrix_of(formula: Any, table: Table, whole: str) -> Any:
    """What formulaic makes of a table, as a data frame with a `model_spec`."""
    try:
        import formulaic
        import pandas as pd
    except ImportError:
        raise ImportError(
            "a formula needs the packages formulaic and pandas: pip install 'upriver[frames]'"
        ) from None
    from formulaic.errors import DataMismatchWarning, FormulaicError

    context = {"offset": lambda x: x, "np": np}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", DataMismatchWarning)
            return formulaic.model_matrix(
                formula,
                pd.DataFrame(dict(table)),
                context=context,
                na_action="ignore",
                output="pandas",
            )
    except DataMismatchWarning as warning:
        found = re.search(r"\{(.*)\}", str(warning))
        unknown = re.sub(r"np\.\w+\((.*?)\)", r"\1", found[1]) if found else "a category"
        raise ValueError(
            f"{formula.formula} holds {unknown}, which the log does not, so it has no coefficient"
        ) from None
    except FormulaicError as error:
        first = re.sub(r"\s+", " ", str(error).split("\n")[0])
        raise ValueError(
            f"the formula {whole!r} cannot be used: {first} The columns are {listed(list(table))}"
        ) from None


def finite(matrix: Array, names: Sequence[str]) -> Array:
    if matrix.dtype.kind == "O":
        raise ValueError(
            "columns of a model without a formula must be numbers of one length; a formula makes "
            "columns of words"
        )
    bad = ~np.isfinite(matrix)
    if bad.any():
        i, j = np.unravel_index(int(np.argmax(bad)), matrix.shape)
        raise ValueError(f"column {names[int(j)]!r} is {matrix[i, j]} somewhere; it must be finite")
    return matrix


class Terms(NamedTuple):
    """The terms of a formula: (name, scale, factors) of each product of factors."""

    factors: list[tuple[str, bool]]
    products: list[tuple[str, float, tuple[int, ...]]]


def terms_of(formula: Formula, sample: Table) -> Terms:
    """How a formula is made of factors; categories are coded as formulaic does on a sample."""
    if callable(formula):
        return Terms([("", False)], [("", 1.0, (0,))])
    if not isinstance(formula, str):
        return Terms([(c, False) for c in formula], [(c, 1.0, (i,)) for i, c in enumerate(formula)])
    number: dict[tuple[str, bool], int] = {}
    products = []
    for term in matrix_of(formula, sample, formula).model_spec.structure:
        for scoped in term.scoped_terms:
            parts = [(f.factor.expr, bool(f.reduced)) for f in scoped.factors]
            at = tuple(number.setdefault(part, len(number)) for part in parts)
            products.append((str(term.term), float(scoped.scale), at))
    return Terms(list(number), products)


def multiplied(terms: Terms, factors: Sequence[Factor]) -> tuple[Column, ...]:
    """The columns of all products; the first factor changes fastest, as formulaic has it."""
    columns = []
    for term, scale, at in terms.products:
        for places in product(*(range(len(factors[f].names)) for f in reversed(at))):
            parts = tuple(zip(at, reversed(places), strict=True))
            name = ":".join(factors[f].names[c] for f, c in parts) or "Intercept"
            columns.append(Column(name, term or name, parts, scale))
    return tuple(columns)
