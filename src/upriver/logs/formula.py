"""From a formula to columns: every term is a product of factors.

Of `age:worse`, age belongs to the situation and worse to the move. So a factor is evaluated once
for each situation, or once for each triple (s, a, s'), and only a factor that mixes both (such as
`I(age > level_next)`) for each row of the expanded table.

A formula is code that the user writes. The name of a column is not: a column that a formula quotes
in backticks is looked up, and coded under a name that this module makes.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import formulaic
import numpy as np
import pandas as pd
from formulaic.errors import DataMismatchWarning, FormulaicError

from upriver.checks import Array, format_value
from upriver.logs.tables import LARGEST, listed

Columns = Mapping[str, Array]
Product = tuple[str, float, tuple[int, ...]]
"""The term, the scale and the numbers of the factors of a product."""
QUOTED = re.compile(
    r"""`([^`]*)`                                    # the name of a column
    | \bQ\(\s* (?: '([^']*)' | "([^"]*)" )          # as well
    | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*"          # a text
    """,
    re.VERBOSE,
)
"""Names of columns in backticks or in Q(...), and texts, which are no names."""
ROWWISE = 1_000  # rows that show whether an expression depends on other rows
SAFE = "quoted_column"  # the name under which formulaic sees a column that it codes


class Factor(NamedTuple):
    """A part of terms: a column, or an expression such as `C(ward)` or `bs(age, df=4)`."""

    text: str  # As the formula has it; of a column its name
    is_column: bool  # Whether it is a column by name, and not an expression
    reduced: bool = False  # Whether the reference category is left out
    spec: Any = None  # formulaic's specification, which makes the same columns of other tables
    names: tuple[str, ...] = ()

    def uses(self, name: str) -> bool:
        """Whether the factor uses a column of this name."""
        return self.text == name if self.is_column else mentions(self.text)(name)


class Column(NamedTuple):
    """A column of the model: a product of columns of factors, times a number."""

    name: str
    term: str
    parts: tuple[tuple[int, int], ...]  # (number of the factor, number of its column) of each part
    scale: float


class Recipe(NamedTuple):
    """How a formula makes columns of a table."""

    factors: tuple[Factor, ...]
    columns: tuple[Column, ...]

    def rows(self, table: Columns, keep: Array) -> Array:
        """Return (n, len(keep)) some of the columns of an expanded table."""
        used = {f for j in keep for f, _ in self.columns[j].parts}
        cells = {f: evaluate_factor(self.factors[f], table)[0] for f in used}
        made = np.empty((len(next(iter(table.values()))), len(keep)))
        for i, j in enumerate(keep):
            made[:, i] = self.columns[j].scale
            for f, c in self.columns[j].parts:
                made[:, i] *= cells[f][:, c]
        return made


def mentions(formula: str) -> Callable[[str], bool]:
    """Return a function that says whether a formula uses a column of a name."""
    if not isinstance(formula, str):
        raise TypeError(f"formula is {format_value(formula)}; it must be text")
    quoted = {name for found in QUOTED.findall(formula) for name in found}
    bare = QUOTED.sub(" ", formula)

    def uses(name: str) -> bool:
        found = re.search(rf"(?<![\w.]){re.escape(str(name))}(?!\w)", bare)
        return name in quoted or found is not None

    return uses


def words_of(cells: Array) -> frozenset[Any]:
    """Return the distinct words of a column; none of a column of numbers."""
    return frozenset(cells.tolist() if cells.dtype.kind in "OUS" else ())


def check_words(name: str, cells: Array, known: frozenset[Any]) -> None:
    """Refuse cells that are not among the known words of a column, or text in one of numbers."""
    is_text = cells.dtype.kind in "OUS"
    for cell in dict.fromkeys(cells.tolist()) if known or is_text else ():
        if cell not in known:
            allowed = f"one of {listed(sorted(known, key=str))}" if known else "a number"
            raise ValueError(f"column {name!r} holds {cell!r}, which the log does not; it must be "
                             f"{allowed}")  # fmt: skip


def parse_terms(
    formula: str, sample: Columns, known: Sequence[str]
) -> tuple[list[Factor], list[Product]]:
    """Return the factors of a formula and its products of factors.

    Categories are coded as formulaic codes those of a sample. known: all columns that the formula
    could have used, for error messages.
    """
    number: dict[Factor, int] = {}
    products = []
    made = apply_formulaic(formula, sample, formula, known)
    if isinstance(made, formulaic.ModelMatrices):
        raise ValueError(f"the formula {formula!r} has several parts; it must be one part, without "
                         "~ and |")  # fmt: skip
    for term in made.model_spec.structure:
        for scoped in term.scoped_terms:
            at = []
            for part in scoped.factors:
                factor = part.factor.factor
                is_column = factor.eval_method.value == "lookup"
                made = Factor(factor.expr, is_column, bool(part.reduced))
                at.append(number.setdefault(made, len(number)))
            products.append((str(term.term), float(scoped.scale), tuple(at)))
    if not products:
        raise ValueError(f"the formula {formula!r} leaves nothing to estimate; it needs a term")
    return list(number), products


def multiply_factors(products: list[Product], factors: Sequence[Factor]) -> tuple[Column, ...]:
    """Return the columns of all products; the first factor changes fastest, as in formulaic."""
    columns = []
    for term, scale, at in products:
        for places in product(*(range(len(factors[f].names)) for f in reversed(at))):
            parts = tuple(zip(at, reversed(places), strict=True))
            name = ":".join(factors[f].names[c] for f, c in parts) or "Intercept"
            columns.append(Column(name, term or name, parts, scale))
    return tuple(columns)


def parse_recipe(formula: str, table: Columns, known: Sequence[str]) -> Recipe:
    """Return how a formula makes columns of a table that has all rows there are."""
    bare, products = parse_terms(formula, table, known)
    factors = tuple(evaluate_factor(factor, table)[1] for factor in bare)
    return Recipe(factors, multiply_factors(products, factors))


def evaluate_factor(factor: Factor, table: Columns) -> tuple[Array, Factor]:
    """Return (n, k) the columns of a factor, and the factor with what it learned from the table."""
    text = factor.text
    if factor.is_column and table[text].dtype.kind in "mM":
        raise ValueError(f"column {text!r} holds dates; a formula needs numbers or words")
    if factor.is_column and table[text].dtype.kind in "iuf":
        found, names = table[text][:, None], (text,)
    else:
        used, inner = {c: x for c, x in table.items() if factor.uses(c)} or table, f"{{{text}}}"
        if factor.is_column:
            used, inner = {SAFE: table[text]}, SAFE
        made = apply_formulaic(factor.spec or f"{int(factor.reduced)} + {inner}", used, text)
        keep = [i for i, c in enumerate(made.columns) if c != "Intercept"]
        found = made.to_numpy(np.float64)[:, keep]
        names = tuple(str(made.columns[i]).replace(SAFE, text, 1) for i in keep)
        factor = factor._replace(spec=made.model_spec)
    found = np.asarray(found, np.float64)
    if not factor.is_column and not factor.names:
        check_rowwise(factor, table, found)
    bad = ~(np.abs(found) < LARGEST)
    if bad.any():
        i, j = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise ValueError(f"column {names[j]!r} is {found[i, j]} somewhere; it must be finite and "
                         f"less than {LARGEST:g} in size")  # fmt: skip
    return found, factor._replace(names=names)


def check_rowwise(factor: Factor, table: Columns, found: Array) -> None:
    """Refuse an expression whose rows depend on other rows, beyond what formulaic remembers.

    It is evaluated again on two parts of the table, as new data would be.
    """
    n = min(len(found) // 2, ROWWISE)
    for some in (slice(n), slice(len(found) - n, None)) if n else ():
        part = {c: x[some] for c, x in table.items()}
        again = evaluate_factor(factor._replace(names=("",)), part)[0]
        if not np.allclose(again, found[some], rtol=1e-6, equal_nan=True):
            used = next((c for c in table if factor.uses(c)), "x")
            raise ValueError(f"{factor.text!r} depends on other rows of the table, so it would "
                             "change on new data; compute a column beforehand, or use what "
                             f"remembers, such as center({used})")  # fmt: skip


def apply_formulaic(
    formula: Any, table: Columns, text: str, known: Sequence[str] | None = None
) -> Any:
    """Return what formulaic makes of a table, as a data frame with a `model_spec`."""
    context = {"np": np}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", DataMismatchWarning)
            return formulaic.model_matrix(
                formula, pd.DataFrame(dict(table)), context=context, na_action="ignore",
                output="pandas",
            )  # fmt: skip
    except DataMismatchWarning as warning:
        found = re.search(r"\{(.*)\}", str(warning))
        unknown = re.sub(r"np\.\w+\((.*?)\)", r"\1", found[1]) if found else "a category"
        raise ValueError(
            f"{text} holds {unknown}, which the log does not, so it has no coefficient"
        ) from None
    except TypeError:
        dates = [c for c, x in table.items() if x.dtype.kind in "mM"]
        if not dates:
            raise
        raise ValueError(f"column {dates[0]!r} holds dates; a formula needs numbers or words, such "
                         f"as C({dates[0]}) or {dates[0]}.dt.year") from None  # fmt: skip
    except FormulaicError as error:
        first = " ".join(str(error).split("\n")[0].split())
        raise ValueError(f"the formula {text!r} cannot be used: {first} The columns are "
                         f"{listed(known or table, 40)}") from None  # fmt: skip
