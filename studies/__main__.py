"""`upriver findings`: an experiment of the findings page with its table and figures."""

from __future__ import annotations

from pathlib import Path


def findings(
    experiment: str,
    *,
    out: Path | None = None,
    runs: int | None = None,
    jobs: int | None = None,
    quiet: bool = False,
) -> int:
    """Run an experiment of the findings page and write its table and figures.

    Example: upriver findings scaling --out results/scaling

    `icu-sepsis` instead fits logs of the clinicians of ICU-Sepsis, RUNS logs of each size.

    Parameters
    ----------
    experiment
        scaling, equal-information, how-much-bonus, misspecification, uneven-rivers, regret-rate,
        unknown-reward, exploration-needed, untuned, untuned-drawn, useful-range, untuned-long,
        how-many-errors, streams, how-much-spread, cho-figure-1, kappa, changing or all-mnl; or a
        TOML file of one of these names.
    out
        The results folder: one file per run, table.csv, table.md and the figures (PNG and PDF);
        results/NAME if absent. What is stored already is not run again.
    runs
        Runs of each agent on each environment; those of the experiment if absent.
    jobs
        Worker processes; one for each processor if absent.
    quiet
        Plain lines instead of bars.
    """
    from studies import FINDINGS, Cell, find
    from upriver.cli.run import keep_on_interrupt, print_outcome
    from upriver.experiments import execute, import_code, load
    from upriver.experiments.progress import make_reporter
    from upriver.mdp.writing import write_file
    from upriver.results.plots import save_figure
    from upriver.results.runs import load_runs
    from upriver.results.tables import to_csv

    if experiment == "icu-sepsis":  # logs, not runs of agents
        from studies.icu_sepsis import study

        print(study(out or Path("results") / experiment, runs or 20))
        return 0
    for name in ("changing", "kappa"):  # the code that the specifications name
        import_code(Path(__file__).parent / f"{name}.py")
    spec = load(experiment)
    if spec.name not in FINDINGS:
        raise ValueError(
            f"experiment {spec.name!r} has no finding (allowed: {', '.join(FINDINGS)})"
        )
    if runs is not None:
        spec = spec.with_seeds(runs, spec.seeds.first)
    folder = out or Path("results") / spec.name
    reporter = make_reporter(quiet)
    outcome = keep_on_interrupt(lambda: execute(spec, folder, jobs, reporter=reporter), folder)
    if code := print_outcome(outcome, folder):
        return code
    found = find(spec, load_runs(folder, timing=True))
    files = [
        write_file(folder / "table.csv", to_csv(Cell._fields, found.cells)),
        write_file(folder / "table.md", found.table),
    ]
    for name, figure in found.figures.items():
        files += save_figure(figure, folder / name)
    print(found.table)
    print("written:")
    for path in files:
        print(f"  {path}")
    return code
