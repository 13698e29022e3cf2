"""Which columns of a formula can be estimated, and the rows of the model that they make."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from upriver.checks import Array
from upriver.display import add_repr
from upriver.logs.formula import (
    Columns,
    Factor,
    Recipe,
    check_words,
    evaluate_factor,
    multiply_factors,
    parse_terms,
    words_of,
)  # fmt: skip
from upriver.logs.situations import Situations, StateSpace, Wanted, build_situations, expand
from upriver.logs.tables import listed
from upriver.mnl.choices import Choices, Products

ALIASED = 1e-9  # share of a column's variation that the columns before it must leave
DENSE = 4_000_000  # numbers of the expanded rows up to which they are held as a table
OFFSET = re.compile(r"(?<![\w.])offset\(")
SAMPLE = 2_000  # situations that show how a formula codes its categories
REASONS = (
    "is the same for every next state of a situation, so it has no effect; interact it with "
    "something of the next state",
    "leave one of them out, or use a positive regularization",
    "it must use the next state",
)


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class Design:
    """How the expanded table becomes the rows of the model."""

    formula: str
    recipe: Recipe
    keep: Array  # The columns that are estimated
    fixed: Array  # The columns of offset(...), whose coefficient is 1
    dropped: list[str]
    """Columns that are combinations of others of their situation: reference categories."""
    words: Mapping[str, frozenset[Any]]  # Of each column in the log; none of a column of numbers

    @property
    def names(self) -> list[str]:
        return [self.recipe.columns[j].name for j in self.keep]

    @property
    def terms(self) -> list[str]:
        return [self.recipe.columns[j].term for j in self.keep]

    def rows(self, table: Columns) -> tuple[Array, Array]:
        """Return (n, d) features and (n,) offset of an expanded table."""
        for name, known in self.words.items():
            check_words(name, table[name], known)
        x, offset = (self.recipe.rows(table, columns) for columns in (self.keep, self.fixed))
        return x, offset.sum(axis=1)


def build_design(
    formula: str, space: StateSpace, of: Situations, wanted: Wanted,
    known: Sequence[str], visits: Array, strict: bool,
) -> tuple[Design, Any, Array | None]:  # fmt: skip
    """Return the design, its rows (n, d) and the offset (n,) or None.

    wanted, known: the columns that the formula uses, and all that it could have used. visits: (G,)
    the weight of each situation. strict: whether terms that are combinations of others are refused;
    a ridge keeps them.
    """
    of_pairs = build_situations(space, np.flatnonzero(np.bincount(of.pair)), {})
    triples = expand(space, of_pairs, wanted)
    recipe, every = factorize(formula, space, of, of_pairs, triples, wanted, known)
    fixed = find_offsets(recipe)
    keep, dropped = identify(recipe, every, visits, fixed, strict)
    words = {name: words_of(cells) for name, cells in {**triples, **of.covariates}.items()}
    design = Design(formula, recipe, keep, np.flatnonzero(fixed), dropped, words)
    offset = every.columns(design.fixed)[:].sum(axis=1) if fixed.any() else None
    x = every.columns(keep)
    return design, x[:] if len(x) * x.shape[1] <= DENSE else x, offset


def find_offsets(recipe: Recipe) -> Array:
    """Return (d,) whether each column is a term offset(...), whose coefficient is 1.

    What an offset would mean in an interaction or inside of another function, and what it would be
    of categories, is not clear; so they are refused.
    """
    found = np.zeros(len(recipe.columns), bool)
    for j, column in enumerate(recipe.columns):
        factors = [recipe.factors[f] for f, _ in column.parts]
        offsets = [x for x in factors if not x.is_column and OFFSET.search(x.text)]
        found[j] = len(offsets) > 0
        alone = len(factors) == 1 and column.scale == 1.0
        if offsets and not (alone and OFFSET.match(factors[0].text)):
            raise ValueError(f"{column.term!r} has an offset in it; an offset must be a term of "
                             "its own, such as offset(x * y)")  # fmt: skip
        if offsets and factors[0].names != (factors[0].text,):
            raise ValueError(
                f"{column.term!r} holds several numbers in a row; an offset must be one"
            )
    return found


def factorize(
    formula: str, space: StateSpace, of: Situations, of_pairs: Situations,
    triples: Columns, wanted: Wanted, known: Sequence[str],
) -> tuple[Recipe, Products]:  # fmt: skip
    """Return the recipe of a formula and its columns on the situations of a log.

    of_pairs: the pairs (s, a) of the log as situations without covariates; triples: their table.
    """
    some = np.unique(np.linspace(0, len(of.pair) - 1, SAMPLE).astype(np.int64))
    bare, products = parse_terms(formula, expand(space, of.select(space, some), wanted), known)
    places = [belongs(factor, of.covariates, triples) for factor in bare]
    found = []
    for factor, place in zip(bare, places, strict=True):
        table = {"situation": of.covariates, "triple": triples}.get(place)
        table = expand(space, of, factor.uses) if table is None else table
        found.append(evaluate_factor(factor, table))
    cells, factors = [x for x, _ in found], tuple(made for _, made in found)
    recipe = Recipe(factors, multiply_factors(products, factors))
    number: dict[tuple[Any, ...], int] = {(): 0}  # the products of columns of a situation
    left_of, whole, whole_at = [], [], []
    right = np.ones((len(of_pairs.successor), len(recipe.columns)))
    for j, column in enumerate(recipe.columns):
        right[:, j] *= column.scale
        left, rows = [], []
        for f, c in column.parts:
            if places[f] == "triple":
                right[:, j] *= cells[f][:, c]
            else:
                (left if places[f] == "situation" else rows).append((f, c))
        left_of.append(number.setdefault(tuple(left), len(number)))
        if rows:
            whole.append(reduce(np.multiply, [cells[f][:, c] for f, c in rows]))
            whole_at.append(j)
    left = np.ones((len(of.pair), len(number)))
    for at in range(0, len(left), 4096):  # rows that stay in the cache while columns are written
        some = slice(at, at + 4096)
        for parts, k in number.items():
            for f, c in parts:
                left[some, k] *= cells[f][some, c]
    first = np.zeros(len(space.sizes), np.int64)  # of the triples of each pair
    first[of_pairs.pair] = of_pairs.indptr[:-1]
    return recipe, Products(
        of.indptr, first[of.pair], left, np.array(left_of), right,
        np.column_stack(whole) if whole else np.empty((int(of.indptr[-1]), 0)),
        np.array(whole_at, np.int64),
    )  # fmt: skip


def belongs(factor: Factor, covariates: Columns, triples: Columns) -> str:
    """Return what a factor is a property of: a situation, a triple, or a row, which has both."""
    of_situation, of_triple = (any(map(factor.uses, table)) for table in (covariates, triples))
    if of_situation and not of_triple:
        return "situation"
    return "row" if of_situation else "triple"


def identify(
    recipe: Recipe, every: Products, visits: Array, fixed: Array, strict: bool
) -> tuple[Array, list[str]]:
    """Return what `select_identified` does; a sample suffices where it identifies all columns."""
    data, sizes = Choices(every.indptr, every, np.zeros(len(every)), visits, 0.0), every.sizes()

    def select(data: Choices, strict: bool) -> tuple[Array, list[str]]:
        # the information where all candidates are alike: the scatter of columns within situations
        gram = data.hessian(np.zeros(len(sizes)))
        varies = np.diag(gram) > 1e-18 * max(float(visits.sum()), 1.0) * sizes**2
        return select_identified(recipe, gram, varies, fixed, strict)

    sampled = data.sample()
    if sampled is not None:
        try:
            keep, dropped = select(sampled[0], True)
            if not dropped:
                return keep, dropped
        except ValueError:  # the sample identifies less than the whole
            pass
    return select(data, strict)


def select_identified(
    recipe: Recipe, gram: Array, varies: Array, fixed: Array, strict: bool,
    reasons: tuple[str, str, str] = REASONS,
) -> tuple[Array, list[str]]:  # fmt: skip
    """Return the columns to estimate, and the names of those that are combinations of others.

    Only differences within a situation count, so a column that is the same for all candidates has
    no effect, and one of the categories of a factor is the reference. A term of which nothing is
    left is a mistake, and the error names it.

    gram: (d, d) the information about all columns; varies: (d,) whether each has any effect;
    reasons: what is said of a term without effect, of a combination of others, and of no term.
    """
    names, terms = [c.name for c in recipe.columns], [c.term for c in recipe.columns]
    scale = 1.0 / np.sqrt(np.where(varies, np.diag(gram), 1.0))
    even = gram * scale[:, None] * scale
    factor = np.empty_like(even)  # row by row the Cholesky factor of the columns that are kept
    keep: list[int] = []
    dropped: list[str] = []
    lost: dict[str, str] = {}
    for j in order_references_last(terms):
        if fixed[j] or terms[j] == "1":
            continue
        rest = even[j] - factor[: len(keep), j] @ factor[: len(keep)]  # less what they explain
        if not varies[j]:
            lost.setdefault(terms[j], "constant")
            dropped.append(names[j])
        elif rest[j] <= ALIASED:
            lost.setdefault(terms[j], combined_names(gram, scale, keep, j, names))
            dropped.append(names[j])
        else:
            factor[len(keep)] = rest / np.sqrt(rest[j])
            keep.append(j)
    keep.sort()
    kept_terms = {terms[j] for j in keep}
    for term, reason in lost.items():
        if term in kept_terms:
            continue
        if reason == "constant":
            raise ValueError(f"{term!r} {reasons[0]}")
        if strict:
            raise ValueError(f"{term!r} is a combination of {reason}; {reasons[1]}")
    if not strict:  # a ridge tells apart what the data do not
        again = [j for j in range(len(names)) if terms[j] in set(lost) - kept_terms]
        keep = sorted([*keep, *again])
        dropped = [n for n in dropped if n not in {names[j] for j in again}]
    if not keep:
        raise ValueError(f"the formula leaves nothing to estimate; {reasons[2]}")
    return np.array(keep), dropped


def order_references_last(terms: Sequence[str]) -> list[int]:
    """Return the columns term by term, each from its last: its first category is the reference."""
    order = {term: i for i, term in enumerate(dict.fromkeys(terms))}
    return sorted(range(len(terms)), key=lambda j: (order[terms[j]], -j))


def combined_names(gram: Array, scale: Array, keep: list[int], j: int, names: Sequence[str]) -> str:
    """Return the names of the columns of which column j is a combination."""
    even = gram * scale[:, None] * scale
    weights = np.linalg.lstsq(even[np.ix_(keep, keep)], even[keep, j], rcond=None)[0]
    used = [names[k] for k, w in zip(keep, weights, strict=True) if abs(w) > 1e-6]
    return listed(used) or "others"
