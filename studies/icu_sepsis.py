"""ICU-Sepsis: what policies from logs are worth, with shared, one-hot and pooled features.

Logs are written by the clinicians' policy on the benchmark's MDP, where the truth is known. One
line of results.csv for each log and kind of features; lines that are there are not made again.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from studies import icu
from upriver.checks import Array
from upriver.features import Features, one_hot, pooled
from upriver.logs.fit import fit_transitions
from upriver.logs.model import TransitionModel
from upriver.logs.planning import plan_from_model
from upriver.logs.value import policy_value
from upriver.mdp import FiniteMDP, Task
from upriver.mdp.writing import write_file
from upriver.mnl.fit import fit_mnl
from upriver.planning.optimum import evaluate, solve, start_value
from upriver.play.rollouts import rollouts
from upriver.results.plots import save_figure

SIZES = 1000, 3000, 10_000, 30_000, 100_000
KINDS = "shared", "one-hot", "pooled"
FIELDS: tuple[str, ...] = (
    "rows", "seed", "features", "value", "planned", "low", "high", "other_low", "other_high",
    "clinicians_low", "clinicians_high", "cautious", "promise", "fit_seconds", "plan_seconds",
)  # fmt: skip
OTHER = 1000  # added to a seed: the log that had no part in choosing the plan
COLOURS = {"shared": ("#009e73", "s"), "one-hot": ("#767676", "o"), "pooled": ("#d55e00", "D")}


def a_log(mdp: FiniteMDP, n_rows: int, seed: int) -> Array:
    """(n,) counts of the first n rows of as many patients as it takes."""
    task = mdp.true_task
    done = rollouts(mdp, icu.clinicians(), n_rows // 8 + 50, seed)
    there = done.states[:, :-1] < icu.DEAD
    group = done.states[:, :-1] * task.n_actions + done.actions
    wanted = (group * task.n_states + done.states[:, 1:])[there][:n_rows]
    declared = np.repeat(np.arange(len(task.sizes)), task.sizes) * task.n_states + task.successors
    return np.bincount(np.searchsorted(declared, wanted), minlength=task.n_triples).astype(float)


def maps(task: Task) -> dict[str, Features]:
    shared = icu.icu_sepsis_features(task)
    return {"shared": shared, "one-hot": one_hot(task), "pooled": pooled(shared)}


def measure(mdp: FiniteMDP, phi: Features, counts: Array, other: Array) -> dict[str, float]:
    """Fit, plan, and what the plan is truly worth beside what this log and another one say.

    Intervals and cautious plans are those of a formula, so only the shared features have them.
    """
    start = dict(zip(mdp.initial_states.tolist(), mdp.initial_probability.tolist(), strict=True))
    began = time.process_time()
    estimate = fit_mnl(phi, counts, 1.0)
    fitted = time.process_time()
    plan = solve(estimate.to_mdp())
    planned = time.process_time()
    found = dict.fromkeys(FIELDS[3:], np.nan) | {
        "value": start_value(mdp, evaluate(mdp, plan)), "planned": start_value(mdp, plan.v),
        "fit_seconds": fitted - began, "plan_seconds": planned - fitted,
    }  # fmt: skip
    if sparse.issparse(phi.matrix):
        return found
    model, unseen = (a_model(phi, x) for x in (counts, other))
    asked = {"": (model, plan.policy), "other_": (unseen, plan.policy),
             "clinicians_": (model, icu.clinicians())}  # fmt: skip
    for word, (by, policy) in asked.items():
        said = policy_value(by.at(start=start), policy)
        found |= {f"{word}low": said.low, f"{word}high": said.high}
    careful = plan_from_model(model.at(start=start), "cautious")
    return found | {
        "cautious": start_value(mdp, evaluate(mdp, careful.policy)),
        "promise": start_value(mdp, careful.v),
    }


def a_model(phi: Features, counts: Array) -> TransitionModel:
    """The model of a formula whose attributes of moves are the features."""
    task, attributes = phi.task, dict(zip(phi.names or (), phi.matrix.T, strict=True))
    del attributes["ends"]  # the only next state of its states, so it has no effect
    cells = dict(zip(("state", "action", "next_state"), task.triples, strict=True))
    return fit_transitions(
        " + ".join(f"`{name}`" for name in attributes), cells, states=cells | attributes,
        weights=counts + 1e-9,  # so that every action is in the log
        regularization=1.0, horizon=task.horizon, reward=task.reward,
    )  # fmt: skip


def study(folder: Path, n_logs: int = 20, sizes: Iterable[int] = SIZES) -> str:
    """Measure what is missing, write table.md and the figure, and return the table."""
    mdp = icu.icu_sepsis()
    file, found = folder / "results.csv", {}
    if file.exists():
        with file.open(newline="") as text:
            found = {key(line): line for line in csv.DictReader(text)}
    folder.mkdir(parents=True, exist_ok=True)
    kinds = maps(mdp.true_task)
    for n_rows in sizes:
        for seed in range(n_logs):
            logs: list[Array] = []
            for kind, phi in kinds.items():
                line: dict[str, Any] = {"rows": n_rows, "seed": seed, "features": kind}
                if key(line) in found:
                    continue
                logs = logs or [a_log(mdp, n_rows, seed + k) for k in (0, OTHER)]
                line |= measure(mdp, phi, *logs)
                found[key(line)] = line
                new = not file.exists()
                with file.open("a", newline="") as text:
                    writer = csv.DictWriter(text, FIELDS)
                    if new:
                        writer.writeheader()
                    writer.writerow(line)
    lines = [{k: v if k == "features" else float(v) for k, v in x.items()} for x in found.values()]
    optimum = start_value(mdp, solve(mdp).v)
    clinicians = start_value(mdp, evaluate(mdp, icu.clinicians()))
    rows = summary(lines, clinicians)
    text = as_table(rows, optimum, clinicians)
    write_file(folder / "table.md", text)
    save_figure(figure(rows, optimum, clinicians), folder / "icu-sepsis")
    return text


def key(line: dict[str, Any]) -> tuple[int, int, str]:
    return int(line["rows"]), int(line["seed"]), line["features"]


def summary(lines: list[dict[str, Any]], clinicians: float) -> list[dict[str, Any]]:
    """One row per log size and kind of features."""
    rows = []
    for n in sorted({x["rows"] for x in lines}):
        for kind in KINDS:
            part = [x for x in lines if x["rows"] == n and x["features"] == kind]
            if not part:
                continue
            at = {f: np.array([x[f] for x in part]) for f in FIELDS if f != "features"}
            value = at["value"]
            half = 1.96 * value.std(ddof=1) / np.sqrt(len(part)) if len(part) > 1 else np.nan
            rows.append({
                "rows": int(n), "features": kind, "logs": len(part), "value": value.mean(),
                "half": half, "planned": at["planned"].mean(),
                "own": share(at["low"], value, at["high"]),
                "other": share(at["other_low"], value, at["other_high"]),
                "clinicians": share(at["clinicians_low"], clinicians, at["clinicians_high"]),
                "cautious": at["cautious"].mean(), "promise": at["promise"].mean(),
                "kept": share(at["promise"], at["cautious"], 1.0),
                "fit": np.median(at["fit_seconds"]), "plan": np.median(at["plan_seconds"]),
            })  # fmt: skip
    return rows


def share(low: Array, truth: Array | float, high: Array | float) -> float:
    """How often an interval holds the truth; nan where there are none."""
    return np.nan if np.isnan(low).any() else float(np.mean((low <= truth) & (truth <= high)))


def percent(value: float, digits: int = 0) -> str:
    return "–" if np.isnan(value) else f"{100 * value:.{digits}f}%"


def as_table(rows: list[dict[str, Any]], optimum: float, clinicians: float) -> str:
    lines = [
        f"Survival: clinicians {100 * clinicians:.1f}%, optimum {100 * optimum:.1f}%.",
        "",
        "| rows | features | survival | as planned | interval covers: same log | other log | "
        "clinicians | cautious plan | promised | kept | fit, s | plan, s |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for r in rows:
        covers = " | ".join(percent(r[k]) for k in ("own", "other", "clinicians"))
        careful = " | ".join(percent(r[k], 1) for k in ("cautious", "promise"))
        lines.append(
            f"| {r['rows']:,} | {r['features']} | {100 * r['value']:.2f}% ± "
            f"{100 * r['half']:.2f} | {100 * r['planned']:.1f}% | {covers} | {careful} | "
            f"{percent(r['kept'])} | "
            f"{r['fit']:.2f} | {r['plan']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def figure(rows: list[dict[str, Any]], optimum: float, clinicians: float) -> Any:
    """Survival against rows, one line for each kind of features, 95% intervals."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = made.subplots()
    for kind in KINDS:
        part = [r for r in rows if r["features"] == kind]
        colour, mark = COLOURS[kind]
        x, y, e = ([r[k] for r in part] for k in ("rows", "value", "half"))
        axes.errorbar(x, y, e, color=colour, marker=mark, capsize=3, label=kind)
    axes.axhline(optimum, color="#1a1a1a", ls="--", lw=1)
    axes.axhline(clinicians, color="#1a1a1a", ls=":", lw=1)
    axes.text(
        0.99, optimum, "optimum", transform=axes.get_yaxis_transform(), ha="right", va="bottom"
    )
    axes.text(
        0.99, clinicians, "clinicians", transform=axes.get_yaxis_transform(), ha="right",
        va="bottom",
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel("rows of the log")
    axes.set_ylabel("survival under the policy")
    axes.legend(frameon=False, loc="center right")
    return made
