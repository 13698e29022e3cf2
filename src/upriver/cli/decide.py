"""`upriver decide`: from a log to a page about a decision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shlex import join
from typing import Any

from upriver.cli import CALL


def decide(
    log: Path, *, formula: str, reward: str, horizon: int | None = None,
    discount: float | None = None, individual: str | None = None, step: str | None = None,
    start: str | None = None, at: str | None = None, by: str | None = None,
    states: Path | None = None, successors: str | None = None,
    columns: str = "state,action,next_state", cluster: str | None = None,
    weights: str | None = None, ended: str | None = None, propensity: str | None = None,
    regularization: float = 0.0, missing: str = "refuse", plan: str = "cautious",
    confidence: float = 0.95, out: Path = Path("decision.html"),
) -> int:  # fmt: skip
    """Fit a log, plan with the model, and write a page about the plan.

    The page says what to do, what it gains, for whom, and whether the model fits.

    **Example:** `upriver decide clinic.csv --formula next_state:action --reward well=1,ill=0.5
    --horizon 12 --individual patient`

    Parameters
    ----------
    log
        A .csv or .parquet file, or a folder.
    formula
        The transition model. Use only formulas you trust: they run.
    reward
        States and columns with weights, as well=1,cost=-1; a column; or a model
        of a column, as "benefit ~ state + action".
    horizon
        Steps of an episode.
    discount
        Of the next step; 1 without a horizon: average.
    individual
        The column of the individual, over whom values are means; else each cluster or row is one.
    step
        The column of the step; else rows are in order.
    start
        A state, or ward=0.6,icu=0.4.
    at
        Covariates that are fixed, as age=60,sex=f.
    by
        A covariate; the gain is shown for each value.
    states
        A table of attributes of states for the formula.
    successors
        all, or else those seen: possible next states.
    columns
        State, action and next state.
    cluster
        The column of clusters, for clustered errors.
    weights
        The column of how often each row counts.
    ended
        The column of whether individuals have ended.
    propensity
        The column of the probabilities of the logged actions.
    regularization
        The ridge of the fit.
    missing
        drop or refuse rows with gaps.
    plan
        cautious, greedy, or an action.
    confidence
        Of the intervals.
    out
        The page to write.
    """
    from upriver.logs import decision, fit
    from upriver.logs.tables import Table

    names = Table(log).names
    if horizon is None and discount is None:
        raise ValueError("give --horizon, or --discount for an infinite horizon")
    outcomes, planned = read_reward(reward, names)
    model = fit.fit_transitions(
        formula, log, states=states, successors=successors, columns=tuple(columns.split(",")),
        cluster=cluster, weights=weights, regularization=regularization, missing=missing,
        individual=individual, step=step, ended=ended, propensity=propensity, reward=outcomes,
    )  # fmt: skip
    space = model.log.space
    if isinstance(planned, dict):
        known = {**model.log.outcomes(), **{s: s for s in space.states}}
        planned = {by_text("--reward", list(known), k, "states and columns"): x
                   for k, x in planned.items()}  # fmt: skip
    values = parse_values("--at", at or "", log)
    first: Any = None
    if start is not None:
        shares = parse_values("--start", start) if "=" in start else {start.strip(): 1.0}
        first = {by_text("--start", space.states, s, "states"): p for s, p in shares.items()}
    model = model.at(values, horizon=horizon, discount=discount, reward=planned, start=first)
    made = decision.decide(model, plan, by=by, confidence=confidence)
    made = replace(made, command=join(CALL))
    print(made.summary(), made.save(out), sep="\n")
    return 0


def read_reward(text: str, columns: list[str]) -> tuple[Any, Any]:
    """Return the outcomes to estimate, and the reward to plan with.

    Columns of the log are outcomes; the states of a mixed reward are one outcome together.
    """
    if "=" not in text or "~" in text or text in columns:
        return text, text
    weights = parse_values("--reward", text)
    of_columns = {name: x for name, x in weights.items() if name in columns}
    of_states = {name: x for name, x in weights.items() if name not in columns}
    if not of_columns:
        return None, weights
    outcomes = {name: name for name in of_columns} | ({"states": of_states} if of_states else {})
    return outcomes, {name: of_columns.get(name, 1.0) for name in outcomes}


def by_text(option: str, names: Any, given: Any, kind: str) -> Any:
    """Return the name that is equal to what was given, or that reads like it."""
    known = {str(name): name for name in names}
    if str(given) not in known:
        raise ValueError(f"{option} names {given!r}; the {kind} are {', '.join(known)}")
    return known[str(given)]


def parse_values(option: str, text: str, log: Path | None = None) -> dict[str, Any]:
    """Return {name: value} from a=1,b=word: numbers, or with a log what its columns hold."""
    from upriver.logs.tables import Table

    kinds = Table(log).open_columns([]) if log is not None and text else {}
    found: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = (x.strip() for x in part.partition("="))
        wrong = f"{option} has {part!r}; it must be name={'number' if log is None else 'value'}"
        if not (name and equals and value):
            raise ValueError(wrong)
        if name in found:
            raise ValueError(f"{option} names {name!r} more than once")
        found[name] = value
        if kinds.get(name) == "BOOLEAN" and value.lower() in ("true", "false"):
            found[name] = value.lower() == "true"
        elif kinds.get(name) != "VARCHAR":
            try:
                found[name] = float(value)
            except ValueError:  # of a covariate the model says what it must be
                if log is None:
                    raise ValueError(wrong) from None
    return found
