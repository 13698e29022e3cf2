"""Table IX of Rust (1987): the engines of bus group 4, estimated again from the public log.

Rust maximized the likelihood of choices and moves together. Here the moves are estimated first.

The log has the columns Bus_ID, period, state (the odometer in bins of 5,000 miles), usage (how many
bins were driven since the month before) and decision (1: the engine was replaced). The first month
of a bus has no usage, and its choice does not count.

J. Rust (1987), Optimal replacement of GMC bus engines: an empirical model of Harold Zurcher,
Econometrica 55, 999-1033.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import upriver as up
from upriver.mdp.writing import write_file
from upriver.results.tables import to_csv

BINS, ACTIONS = 90, ("keep", "replace")
LAST = BINS - 1
# The last bin collects all that goes beyond it. Two copies of it are states as well, so that there
# too each move is by 0, 1 or 2, and the moves are one multinomial logit.
STATES = BINS + 2
PRINTED = {  # estimate and standard error of Table IX, linear cost, 90 bins, group 4
    0.9999: {"RC": (10.0750, 1.582), "theta11": (2.2930, 0.639), "log-likelihood": (-3304.155,)},
    0.0: {"RC": (7.6358, 0.7197), "theta11": (71.5133, 13.778), "log-likelihood": (-3306.028,)},
}
FIELDS = (
    "discount", "quantity", "printed", "estimate", "printed_error", "outer_product_error",
    "classical_error", "robust_error", "cluster_error",
)  # fmt: skip


def read_log(path: Path) -> tuple[Any, Any]:
    """Return the choices and the moves of the log, as frames."""
    import pandas as pd

    log = pd.read_csv(path).sort_values(["Bus_ID", "period"], ignore_index=True)
    log["action"] = np.array(ACTIONS)[log["decision"].to_numpy()]
    # an engine that is replaced starts at 0 and is driven in the same month
    after = log.groupby("Bus_ID")["usage"].shift(-1)
    log["next_state"] = np.where(log["decision"] == 1, 0, log["state"]) + after
    moves = log[log["next_state"].notna()].astype({"next_state": int})
    return log[log["usage"].notna()], moves


def describe_pairs() -> Any:
    """Return the columns of the reward, -RC for a new engine and -.001 theta11 x for an old one."""
    import pandas as pd

    rows = [
        (x, a, -float(a == "replace"), -0.001 * min(x, LAST) * (a == "keep"))
        for x in range(STATES)
        for a in ACTIONS
    ]
    return pd.DataFrame(rows, columns=["state", "action", "RC", "theta11"])


def describe_moves() -> Any:
    """Return the possible moves: by 0, 1 or 2 bins."""
    import pandas as pd

    rows = [
        (x, a, base + jump, float(jump == 1), float(jump == 2))
        for x in range(STATES)
        for a, base in zip(ACTIONS, (min(x, LAST), 0), strict=True)
        for jump in range(3)
    ]
    return pd.DataFrame(rows, columns=["state", "action", "next_state", "one", "two"])


def estimate(choices: Any, moves: Any, discount: float) -> tuple[list[dict[str, Any]], float]:
    """Return the lines of the table for a discount, and the CPU seconds of the fit."""
    possible = describe_moves()
    transitions = up.fit_transitions(
        "one + two", moves, states=possible, cluster="Bus_ID",
        successors=possible[["state", "action", "next_state"]],
    )  # fmt: skip

    began = time.process_time()
    fitted = up.fit_rewards(
        "0 + RC + theta11", choices, transitions, discount, states=describe_pairs(),
        cluster="Bus_ID",
    )  # fmt: skip
    seconds = time.process_time() - began
    assert transitions.log is not None
    # Rust's errors are those of the outer product of the scores of choices and moves
    scores, counts = fitted.found.scores, fitted.log.problem.counts
    outer = scores.T @ (counts[:, None] * scores)
    outer[2:, 2:] += transitions.log.data.scatter(transitions.theta)
    errors = {
        "outer_product": np.sqrt(np.diag(np.linalg.inv(outer))),
        **{kind: fitted.with_errors(kind).bse for kind in ("classical", "robust", "cluster")},
    }
    lines = []
    for i, name in enumerate(("RC", "theta11")):
        value, error = PRINTED[discount][name]
        lines.append({
            "discount": discount, "quantity": name, "printed": value,
            "estimate": float(fitted.params[name]), "printed_error": error,
            **{f"{kind}_error": float(np.asarray(x)[i]) for kind, x in errors.items()},
        })  # fmt: skip
    lines.append({
        "discount": discount, "quantity": "log-likelihood",
        "printed": PRINTED[discount]["log-likelihood"][0],
        "estimate": fitted.llf + transitions.llf,
    })  # fmt: skip
    lines.append({
        "discount": discount, "quantity": "log-likelihood of the choices", "estimate": fitted.llf,
    })  # fmt: skip
    return lines, seconds


def study(log: Path, folder: Path) -> str:
    """Write table.csv and table.md into the folder, and return the table."""
    choices, moves = read_log(log)
    lines, seconds = [], 0.0
    for discount in PRINTED:
        more, spent = estimate(choices, moves, discount)
        lines, seconds = lines + more, max(seconds, spent)

    def show(line: dict[str, Any]) -> str:
        cells = [f"{line[f]:.4f}" if f in line else "" for f in FIELDS[2:]]
        return "| " + " | ".join([str(line["discount"]), line["quantity"], *cells]) + " |"

    head = "| " + " | ".join(x.replace("_", " ") for x in FIELDS) + " |"
    rows = [show(line) for line in lines]
    table = "\n".join([head, "|" + "---|" * len(FIELDS), *rows, ""])
    values = [[x.get(f) for f in FIELDS] for x in lines]
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / "table.csv", to_csv(FIELDS, values))
    write_file(folder / "table.md", table)
    return f"{table}\n{len(choices)} choices; the slower fit took {seconds:.2f} s of CPU"
