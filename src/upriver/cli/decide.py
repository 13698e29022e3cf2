"""`upriver decide`: from a log to a page that says what to do, and what that is worth."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any


def decide(
    log: Path,
    *,
    formula: str,
    reward: str,
    horizon: int | None = None,
    discount: float | None = None,
    start: str | None = None,
    states: Path | None = None,
    at: str = "",
    cluster: str | None = None,
    weights: str | None = None,
    columns: str = "state,action,next_state",
    successors: str | None = None,
    episode: str | None = None,
    step: str = "step",
    regularization: float = 0.0,
    confidence: float = 0.95,
    out: Path = Path("decision.html"),
) -> int:
    """Fit a log, plan with it, and write a page about it.

    The policy, what it is worth against what was done, where data are missing, whether it fits.

    **Example:** `upriver decide a.csv --formula next_state --reward ill=1 --horizon 9`

    Parameters
    ----------
    log
        A .csv or .parquet file, one row for each transition.
    formula
        The transition model, as `fit_transitions` takes it. It is code: take none from strangers.
    reward
        What states pay, as well=1,ill=0.5, others 0; or a column of the log: its mean for
        each pair.
    horizon
        Steps of an episode.
    discount
        In place of a horizon; 1 for the average.
    start
        The state where episodes start; if absent, where those of --episode do, or the rows are.
    states
        A table of attributes of states for the formula.
    at
        Values of the covariates, as age=60,dose=2.
    cluster
        The column of the individual, for standard errors that allow for it.
    weights
        The column of how often each row counts.
    columns
        The columns of the state, the action and the next state.
    successors
        state or all: which next states could have been; those seen from the pair if absent.
    episode
        The column of the episode: then checks that do not believe the model are made.
    step
        The column of the step within an episode.
    regularization
        The ridge of the fit.
    confidence
        Of the intervals.
    out
        The page to write.
    """
    from upriver.logs.transitions import fit_transitions
    from upriver.mdp.frames import column, read_table
    from upriver.mdp.writing import write_file
    from upriver.results.report.decision import decision_page

    if (horizon is None) == (discount is None):
        raise ValueError("give --horizon, or --discount for a process that never ends")
    if discount is not None and episode is not None:
        raise ValueError("--episode makes checks by episodes, which --discount has none of")
    names = tuple(columns.split(","))
    table, _ = read_table(log, {*names, reward, weights}.__contains__)
    frame = {c: column(table[c]) for c in table.column_names}
    model = fit_transitions(
        formula, str(log), states=None if states is None else str(states), successors=successors,
        columns=names, cluster=cluster, weights=weights, regularization=regularization,
    )  # fmt: skip
    times = None if weights is None else frame[weights]
    pays = rewards(reward, frame, names, times, model.world)
    fixed = model.at(
        numbers_of("--at", at), horizon=horizon, reward=pays,
        discount=None if discount == 1.0 else discount,
    )  # fmt: skip
    of_log = str(log), names, episode, step
    data = decided(model, fixed, starting(fixed, start, of_log, weights), confidence)
    how = "Name the column of the episode (--episode) to make them."
    none = "They follow episodes to their last step, and there is none."
    data |= {"checks": [], "verdict": how if discount is None else none}
    if episode is not None:
        data |= checked(fixed, data["plan"], of_log, weights, confidence)
    data |= {
        "title": f"Decide from {log.name}",
        "command": f"upriver decide {log} --formula {quote(formula)} --reward {quote(reward)} "
        + (f"--horizon {horizon}" if discount is None else f"--discount {discount:g}"),
    }
    file = write_file(out, decision_page(data))
    print(data["lead"])
    print(f"{file}")
    return 0


def numbers_of(option: str, text: str) -> dict[str, Any]:
    """{name: number} from a=1,b=2."""
    found: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise ValueError(f"{option} has {part!r}; it must be name=number") from None
        if not equals:
            raise ValueError(f"{option} has {part!r}; it must be name=number")
    return found


def rewards(text: str, frame: Any, names: tuple[str, ...], times: Any, world: Any) -> Any:
    """(S, A) rewards."""
    import numpy as np

    states = [str(s) for s in world.states]
    if "=" in text:
        paid = numbers_of("--reward", text)
        for name in paid:
            if name not in states:
                raise ValueError(f"--reward names {name!r}; states are {', '.join(states)}")
        of_state = np.array([paid.get(s, 0.0) for s in states])
        table = np.repeat(of_state[:, None], len(world.actions), axis=1)
    else:
        if text not in frame:
            raise ValueError(f"--reward is {text!r}; it must be state=number,... or a column")
        s = np.array([states.index(str(x)) for x in frame[names[0]]])
        a = np.array([[str(y) for y in world.actions].index(str(x)) for x in frame[names[1]]])
        shape = len(states), len(world.actions)
        total, n = np.zeros(shape), np.zeros(shape)
        often = np.ones(len(s)) if times is None else np.asarray(times, float)
        np.add.at(total, (s, a), often * np.asarray(frame[text], float))
        np.add.at(n, (s, a), often)
        table = np.divide(total, n, out=total, where=n > 0)
    return table


def starting(fixed: Any, start: str | None, of_log: Any, weights: str | None) -> Any:
    """The state named, or {state: share} of the log's episodes or, without any, of its rows."""
    from upriver.logs.episodes import read_episodes
    from upriver.logs.extremes import visits_of

    task = fixed.task
    if start is not None:
        by_word = {str(s): s for s in task.states}
        if start not in by_word:
            raise ValueError(f"--start is {start!r}; states are {', '.join(by_word)}")
        return by_word[start]
    if of_log[2] is not None:
        return read_episodes(task, *of_log, reward=None, weights=weights).starts(task)
    rows = visits_of(task, fixed.counts).reshape(task.n_states, task.n_actions).sum(axis=1)
    return {task.states[s]: float(n / rows.sum()) for s, n in enumerate(rows) if n > 0}


def decided(model: Any, fixed: Any, first: Any, confidence: float) -> dict:
    """The numbers of the page."""
    import numpy as np

    from upriver.logs.extremes import visits_of, worth_of
    from upriver.logs.planning import plan_from_model
    from upriver.logs.value import compare_policies, policy_value

    task = fixed.task
    pairs = visits_of(task, fixed.counts)
    rows = pairs.reshape(task.n_states, task.n_actions)
    plan = plan_from_model(fixed, "cautious", confidence, start=first)
    new, old = (policy_value(fixed, p, confidence, first) for p in (plan, "behaviour"))
    gain = compare_policies(fixed, plan, "behaviour", confidence, first)
    worth = worth_of(fixed, [(plan, 1.0)], first)
    steps = worth.at(worth.origin).occupancy
    table = plan.policy[None] if task.infinite_horizon else plan.policy
    average = task.discount == 1.0
    promise = (
        plan.gain if average else worth.first @ (plan.v if task.infinite_horizon else plan.v[0])
    )
    values = [
        {"name": name, **{k: getattr(v, k) for k in ("value", "standard_error", "low", "high")}}
        for name, v in (("the plan", new), ("what was done", old), ("the gain", gain))
    ]  # fmt: skip
    done = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1.0)
    policy = [
        (state, task.actions[int(table[0, s])], ", ".join(
            f"{task.actions[a]} {100 * done[s, a]:.0f}%" for a in np.argsort(-done[s])
            if done[s, a] > 0
        ))
        for s, state in enumerate(task.states)
    ]  # fmt: skip
    changes = int((table != table[0]).any(axis=1).sum())
    most = [g for g in np.argsort(-steps).tolist() if steps[g] > 0][:12]
    missing = [
        (*(str(x) for x in (task.states[g // task.n_actions], task.actions[g % task.n_actions])),
         f"{steps[g]:.2g}", f"{pairs[g]:g}")
        for g in most
    ]  # fmt: skip
    v, w, d = values
    lead = (
        f"The plan is worth {v['value']:.4g} [{v['low']:.4g}, {v['high']:.4g}], what was done "
        f"{w['value']:.4g} [{w['low']:.4g}, {w['high']:.4g}]: a gain of {d['value']:.4g} "
        f"[{d['low']:.4g}, {d['high']:.4g}]{' a step' if average else ''}. Promised, "
        f"although the plan was chosen: {promise:.4g}."
    )
    return {
        "plan": plan, "values": values, "policy": policy, "missing": missing, "lead": lead,
        "confidence": f"{100 * confidence:g}%",
        "steps": "At every step." if task.infinite_horizon else "The first step of the plan"
        + (f"; {changes} of {task.horizon} steps differ." if changes else ", and every step."),
        "counted": new.steps,
        "unseen": f"{new.unseen:.2g} {new.steps} are in pairs without any row.",
        "model": model.summary(), "fit": model.goodness_of_fit().summary(),
    }  # fmt: skip


def checked(fixed: Any, plan: Any, of_log: Any, weights: str | None, confidence: float) -> dict:
    from upriver.logs.offpolicy import check_policy_value

    found = check_policy_value(fixed, plan, *of_log, confidence=confidence, weights=weights)
    return {"checks": found.rows, "verdict": found.verdict[:1].upper() + found.verdict[1:]}
