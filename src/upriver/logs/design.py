"""Which columns of a formula can be estimated, and the rows of the model that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from upriver.mnl.choices import Choices

ALIASED = 1e-9  # share of a column's variation that the columns before it must leave
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
    dropped: list[str]
    """Columns that are combinations of others of their situation: reference categories."""
    words: Mapping[str, frozenset[Any]]  # Of each column in the log; none of a column of numbers

    @property
    def names(self) -> list[str]:
        return [self.recipe.columns[j].name for j in self.keep]

    @property
    def terms(self) -> list[str]:
        return [self.recipe.columns[j].term for j in self.keep]

    def rows(self, table: Columns) -> Array:
        """Return (n, d) features of an expanded table."""
        for name, known in self.words.items():
            check_words(name, table[name], known)
        return self.recipe.rows(table, self.keep)


def build_design(
    formula: str, space: StateSpace, of: Situations, wanted: Wanted,
    known: Sequence[str], visits: Array, strict: bool,
) -> tuple[Design, Any]:  # fmt: skip
    """Return the design and its rows (n, d).

    wanted, known: the columns that the formula uses, and all that it could have used. visits: (G,)
    the weight of each situation. strict: whether terms that are combinations of others are refused;
    a ridge keeps them.
    """
    of_pairs = build_situations(space, np.flatnonzero(np.bincount(of.pair)), {})
    triples = expand(space, of_pairs, wanted)
    recipe, every, sizes = factorize(formula, space, of, of_pairs, triples, wanted, known)
    # the information where all candidates are alike: the scatter of columns within situations
    data = Choices(of.indptr, every, np.zeros(len(every)), visits, 0.0)
    gram = data.hessian(np.zeros(len(sizes)))
    varies = np.diag(gram) > 1e-18 * max(float(visits.sum()), 1.0) * sizes**2
    keep, dropped = select_identified(recipe, gram, varies, strict)
    words = {name: words_of(cells) for name, cells in {**triples, **of.covariates}.items()}
    design = Design(formula, recipe, keep, dropped, words)
    return design, np.ascontiguousarray(every[:, keep])


def factorize(
    formula: str, space: StateSpace, of: Situations, of_pairs: Situations,
    triples: Columns, wanted: Wanted, known: Sequence[str],
) -> tuple[Recipe, Array, Array]:  # fmt: skip
    """Return the recipe of a formula, its columns (n, d) on the rows of a log and their sizes (d,).

    of_pairs: the pairs (s, a) of the log as situations without covariates; triples: their table.
    """
    some = np.unique(np.linspace(0, len(of.pair) - 1, SAMPLE).astype(np.int64))
    cells = {c: x[some] for c, x in of.covariates.items()}
    sample = expand(space, build_situations(space, of.pair[some], cells), wanted)
    bare, products = parse_terms(formula, sample, known)
    places = [belongs(factor, of.covariates, triples) for factor in bare]
    found = []
    for factor, place in zip(bare, places, strict=True):
        table = {"situation": of.covariates, "triple": triples}.get(place)
        table = expand(space, of, factor.uses) if table is None else table
        found.append(evaluate_factor(factor, table))
    recipe = Recipe(
        tuple(made for _, made in found), multiply_factors(products, [made for _, made in found])
    )
    sizes = np.diff(of.indptr)
    first = np.zeros(len(space.sizes), np.int64)  # of the triples of each pair
    first[of_pairs.pair] = of_pairs.indptr[:-1]
    # the situation and the triple of each row of the expanded table
    rows = {"situation": np.repeat(np.arange(len(sizes)), sizes), "row": slice(None)}
    rows["triple"] = np.arange(of.indptr[-1]) + np.repeat(first[of.pair] - of.indptr[:-1], sizes)
    every = np.empty((int(of.indptr[-1]), len(recipe.columns)))
    sizes = np.empty(len(recipe.columns))
    for j, column in enumerate(recipe.columns):
        values = np.full(len(every), column.scale)  # contiguous, which is several times faster
        for f, c in column.parts:
            values *= found[f][0][:, c][rows[places[f]]]
        every[:, j], sizes[j] = values, max(values.max(), -values.min())
    return recipe, every, sizes


def belongs(factor: Factor, covariates: Columns, triples: Columns) -> str:
    """Return what a factor is a property of: a situation, a triple, or a row, which has both."""
    of_situation, of_triple = (any(map(factor.uses, table)) for table in (covariates, triples))
    if of_situation and not of_triple:
        return "situation"
    return "row" if of_situation else "triple"


def select_identified(
    recipe: Recipe, gram: Array, varies: Array, strict: bool,
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
    place = {term: i for i, term in enumerate(dict.fromkeys(terms))}
    # term by term, each from its last column: its first category is the reference
    for j in sorted(range(len(terms)), key=lambda j: (place[terms[j]], -j)):
        if terms[j] == "1":
            continue
        rest = even[j] - factor[: len(keep), j] @ factor[: len(keep)]  # less what they explain
        if not varies[j]:
            lost.setdefault(terms[j], "constant")
            dropped.append(names[j])
        elif rest[j] <= ALIASED:
            weights = np.linalg.lstsq(even[np.ix_(keep, keep)], even[keep, j], rcond=None)[0]
            used = [names[k] for k, w in zip(keep, weights, strict=True) if abs(w) > 1e-6]
            lost.setdefault(terms[j], listed(used) or "others")
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
