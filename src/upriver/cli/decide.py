"""`upriver decide`: from a log to a page about a decision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shlex import join
from typing import Any


def decide(
    log: Path, *, formula: str, reward: str, horizon: int | None = None,
    discount: float | None = None, start: str | None = None, states: Path | None = None,
    at: str = "", by: str | None = None, cluster: str | None = None, weights: str | None = None,
    columns: str = "state,action,next_state", successors: str | None = None,
    episode: str | None = None, step: str = "step", ended: str | None = None,
    propensity: str | None = None, regularization: float = 0.0, missing: str = "refuse",
    confidence: float = 0.95, out: Path = Path("decision.html"),
) -> int:  # fmt: skip
    """Fit a log, plan with the model, and write a page about the plan.

    The page has the policy, its value against what was done, where data are missing, and whether
    the model fits.

    **Example:** `upriver decide a.csv --formula next_state:action --reward well=1`

    Parameters
    ----------
    log
        A .csv or .parquet file or a folder of Parquet files, one row for each transition.
    formula
        The transition model. Formulas are executed; use only formulas you trust.
    reward
        What to maximise: states, as well=1,ill=0.5; a column of the log, or columns as cost=-1; or
        a model of a column, as "benefit ~ state + action".
    horizon
        Steps of an episode.
    discount
        Of the next step; 1 without a horizon: average.
    start
        The first state; else where episodes or rows are.
    states
        A table of attributes of states for the formula.
    at
        Covariates, as age=60; "average" for the others.
    by
        A covariate; the gain is shown for each value.
    cluster
        The column of individuals, for clustered errors.
    weights
        The column of how often each row counts.
    columns
        The columns of the state, the action and the next state.
    successors
        state or all: which next states were possible.
    episode
        The column of the episode, for more checks.
    step
        The column of the step of a row.
    ended
        How episodes end: a column, or states as a,b.
    propensity
        The column of action probabilities, or a formula.
    regularization
        The ridge of the fit.
    missing
        drop or refuse rows with gaps.
    confidence
        Of the intervals.
    out
        The page to write.
    """
    given = dict(locals())  # the options, also for the command that makes the page again
    from upriver.logs import decision

    options: dict[str, Any] = {k: x for k, x in given.items() if k not in ("log", "out", "formula")}
    given_values = [x for x in at.split(",") if x.strip() != "average"]
    is_mapping = "=" in reward and "~" not in reward
    options |= {
        "reward": parse_values("--reward", reward) if is_mapping else reward,
        "at": parse_values("--at", ",".join(given_values), log),
        "average": len(given_values) < len(at.split(",")),
        "columns": tuple(columns.split(",")),
    }
    made = replace(decision.decide(log, formula, **options), command=command_line(given))
    file = made.save(out)
    print(made.summary())
    print(f"{file}")
    return 0


def command_line(given: dict[str, Any]) -> str:
    """Return the command with all options that differ from their defaults, quoted for a shell."""
    from inspect import signature

    words = ["upriver", "decide", str(given["log"])]
    for name, parameter in signature(decide).parameters.items():
        if name != "log" and given[name] != parameter.default:
            words += [f"--{name}", str(given[name])]
    return join(words)


def parse_values(option: str, text: str, log: Path | None = None) -> dict[str, Any]:
    """Return {name: value} from a=1,b=word: numbers, or with a log what its columns hold."""
    from upriver.logs.tables import Table

    kinds = Table(log).open_columns([]) if log is not None and text else {}
    found: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = (x.strip() for x in part.partition("="))
        kind = "number" if log is None else "value"
        if not (name and equals and value):
            raise ValueError(f"{option} has {part!r}; it must be name={kind}")
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
                    raise ValueError(f"{option} has {part!r}; it must be name={kind}") from None
    return found
