"""From the expanded table to the columns of the model: formulas, lists of columns, functions."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver.checks import Array
from upriver.display import displayed
from upriver.logs.reading import listed

ALIASED = 1e-9  # share of a column's own variation that the columns before it must leave
Formula = str | Sequence[str] | Callable[[Mapping[str, Array]], Mapping[str, Array]]


class Columns(NamedTuple):
    """Every column that a formula makes, before those without effect are left out."""

    matrix: Array
    names: list[str]
    terms: list[str]
    """The term of the formula that each column belongs to."""
    spec: Any
    """formulaic's, which makes the same columns of other tables."""


@displayed
@dataclass(frozen=True, eq=False, repr=False)
class Design:
    """How the expanded table becomes the rows of the model."""

    formula: Formula
    spec: Any
    names: list[str]
    terms: list[str]
    keep: Array
    """The columns that are estimated."""
    fixed: Array
    """The columns of offset(...), whose coefficient is 1."""
    dropped: list[str]
    """Columns that are combinations of others of their situation: reference categories."""
    levels: Mapping[str, frozenset[Any]]
    """The words that each column of words has in the log."""

    def rows(self, table: Mapping[str, Array]) -> tuple[Array, Array | float]:
        """(n, d) features and (n,) offset of an expanded table."""
        for name, known in self.levels.items():
            for word in dict.fromkeys(table[name].tolist()):
                if word not in known:
                    raise ValueError(
                        f"column {name!r} holds {word!r}, which the log does not; it must be one "
                        f"of {listed(sorted(known, key=str))}"
                    )
        every = make_columns(self.formula, table, self.spec).matrix
        return np.ascontiguousarray(every[:, self.keep]), offset_of(every, self.fixed)


def mentions(formula: Formula) -> Callable[[str], bool]:
    """Whether a formula uses a column of a name."""
    if isinstance(formula, str):
        return lambda name: bool(re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", formula))
    if callable(formula):
        return lambda name: True
    return lambda name: name in formula


def make_columns(formula: Formula, table: Mapping[str, Array], spec: Any = None) -> Columns:
    """The columns of a formula on an expanded table; spec: that of the table that was fitted."""
    if isinstance(formula, str):
        return from_formula(formula, table, spec)
    made = formula(table) if callable(formula) else {c: need(table, c) for c in formula}
    names = [str(c) for c in made]
    try:
        matrix = np.column_stack([np.asarray(made[c], np.float64) for c in made])
    except (TypeError, ValueError):
        raise ValueError(
            "columns of a model without a formula must be numbers of one length; a formula makes "
            "columns of words"
        ) from None
    return Columns(finite(matrix, names), names, names, None)


def need(table: Mapping[str, Array], name: str) -> Array:
    if name not in table:
        raise ValueError(f"there is no column {name!r}; it must be one of {listed(list(table))}")
    return table[name]


def from_formula(formula: str, table: Mapping[str, Array], spec: Any) -> Columns:
    try:
        import formulaic
        import pandas as pd
    except ImportError:
        raise ImportError(
            "a formula needs the packages formulaic and pandas: pip install 'upriver[frames]'"
        ) from None
    from formulaic.errors import FormulaicError

    context = {"offset": lambda x: x, "np": np}
    frame = pd.DataFrame(dict(table))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unknown categories were refused before
            made: Any = formulaic.model_matrix(
                formula if spec is None else spec,
                frame,
                context=context,
                na_action="ignore",
                output="pandas",
            )
    except FormulaicError as error:
        first = re.sub(r"\s+", " ", str(error).split("\n")[0])
        raise ValueError(
            f"the formula {formula!r} cannot be used: {first} The columns are {listed(list(table))}"
        ) from None
    spec = made.model_spec
    names = [str(c) for c in made.columns]
    terms = [""] * len(names)
    for term, places in spec.term_indices.items():
        for i in places:
            terms[i] = str(term)
    return Columns(finite(made.to_numpy(np.float64), names), names, terms, spec)


def finite(matrix: Array, names: Sequence[str]) -> Array:
    bad = ~np.isfinite(matrix)
    if bad.any():
        i, j = np.unravel_index(int(np.argmax(bad)), matrix.shape)
        raise ValueError(f"column {names[int(j)]!r} is {matrix[i, j]} somewhere; it must be finite")
    return matrix


def offset_of(matrix: Array, fixed: Array) -> Array | float:
    return matrix[:, fixed].sum(axis=1) if len(fixed) else 0.0


def build_design(
    formula: Formula, table: Mapping[str, Array], indptr: Array, visits: Array, strict: bool
) -> tuple[Design, Array, Array | float]:
    """(the design, its rows (n, d), offset); `strict` refuses terms that others make up."""
    every = make_columns(formula, table)
    fixed = np.array([t.startswith("offset(") for t in every.terms], bool)
    keep, dropped = identified(every, indptr, visits, fixed, strict)
    words = {
        name: frozenset(cells.tolist())
        for name, cells in table.items()
        if cells.dtype.kind in "OUS" and not callable(formula)
    }
    design = Design(
        formula=formula,
        spec=every.spec,
        names=[every.names[i] for i in keep],
        terms=[every.terms[i] for i in keep],
        keep=keep,
        fixed=np.flatnonzero(fixed),
        dropped=dropped,
        levels=words,
    )
    x = every.matrix if len(keep) == every.matrix.shape[1] else every.matrix[:, keep]
    return design, np.ascontiguousarray(x), offset_of(every.matrix, design.fixed)


def identified(
    every: Columns, indptr: Array, visits: Array, fixed: Array, strict: bool
) -> tuple[Array, list[str]]:
    """(the columns to estimate, the names of those that the others of a situation make up).

    Only differences within a situation count, so a column that is the same for all candidates says
    nothing, and one of the categories of a factor is the reference. A term of which nothing is left
    is a mistake, and named.
    """
    gram = within(every.matrix, indptr, visits)
    size = np.einsum("ij,ij->j", every.matrix, every.matrix) / max(len(every.matrix), 1)
    total = max(float(visits.sum()), 1.0)
    varies = np.diag(gram) > 1e-18 * total * np.maximum(size, 1e-300)
    scale = 1.0 / np.sqrt(np.where(varies, np.diag(gram), 1.0))
    rest = gram * scale[:, None] * scale
    keep: list[int] = []
    dropped: list[str] = []
    lost: dict[str, str] = {}
    for j in references_last(every.terms):
        if fixed[j] or every.terms[j] == "1":
            continue
        if not varies[j]:
            lost.setdefault(every.terms[j], "constant")
            dropped.append(every.names[j])
        elif rest[j, j] <= ALIASED:
            made_of = solve_names(gram, scale, keep, j, every.names)
            lost.setdefault(every.terms[j], made_of)
            dropped.append(every.names[j])
        else:
            keep.append(j)
            rest = rest - np.outer(rest[:, j], rest[j]) / rest[j, j]
    kept_terms = {every.terms[j] for j in keep}
    for term, reason in lost.items():
        if term in kept_terms:
            continue
        if reason == "constant":
            raise ValueError(
                f"{term!r} is the same for every next state of a situation, so it has no effect; "
                "interact it with something of the next state"
            )
        if strict:
            raise ValueError(
                f"{term!r} is a combination of {reason}; leave one of them out, or use a positive "
                "regularization"
            )
    keep.sort()
    if not strict:  # a ridge tells apart what the data do not
        again = [j for j in range(len(every.names)) if every.terms[j] in set(lost) - kept_terms]
        keep = sorted([*keep, *again])
        dropped = [n for n in dropped if n not in {every.names[j] for j in again}]
    if not keep:
        raise ValueError("the formula leaves nothing to estimate; it must use the next state")
    return np.array(keep), dropped


def references_last(terms: Sequence[str]) -> list[int]:
    """The columns, term by term, each from its last: so its first category is the reference."""
    order = {term: i for i, term in enumerate(dict.fromkeys(terms))}
    return sorted(range(len(terms)), key=lambda j: (order[terms[j]], -j))


def within(matrix: Array, indptr: Array, visits: Array) -> Array:
    """(D, D) sum over visits of the scatter of the columns around their mean of the situation."""
    sizes = np.diff(indptr)
    total = np.zeros((matrix.shape[1],) * 2)
    at = 0
    while at < len(sizes):  # in parts, so that nothing as large as the matrix is made
        end = max(int(np.searchsorted(indptr, indptr[at] + 200_000, side="right")) - 1, at + 1)
        part = matrix[indptr[at] : indptr[end]]
        starts = indptr[at:end] - indptr[at]
        n = sizes[at:end]
        mean = np.add.reduceat(part, starts, axis=0) / n[:, None]
        centred = part - np.repeat(mean, n, axis=0)
        total += (centred * np.repeat(visits[at:end] / n, n)[:, None]).T @ centred
        at = end
    return total


def solve_names(gram: Array, scale: Array, keep: list[int], j: int, names: Sequence[str]) -> str:
    """The columns of which column j is a combination."""
    even = gram * scale[:, None] * scale
    weights = np.linalg.lstsq(even[np.ix_(keep, keep)], even[keep, j], rcond=None)[0]
    return (
        listed([names[k] for k, w in zip(keep, weights, strict=True) if abs(w) > 1e-6]) or "others"
    )


def means(probability: Array, indptr: Array) -> Any:
    """(G, n) sparse: times rows, it gives their expectation in each situation."""
    n = len(probability)
    return sparse.csr_array((probability, np.arange(n), indptr), (len(indptr) - 1, n))
