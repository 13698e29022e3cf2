"""Run a study and write its table and figures: `python -m studies NAME [--out DIR] [--runs N]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    from studies import FINDINGS, Cell, find, load_study
    from studies.measured import list_runs
    from upriver import load_runs
    from upriver.cli.run import keep_on_interrupt, print_outcome
    from upriver.experiments import execute
    from upriver.experiments.execute import make_reporter
    from upriver.mdp.writing import write_file
    from upriver.results.plots import save_figure
    from upriver.results.tables import to_csv

    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    parser.add_argument(
        "name",
        choices=[*FINDINGS, "environments", "factored", "icu-sepsis", "rust"],
        help="the study",
    )
    parser.add_argument("--out", type=Path, help="the results folder; results/NAME by default")
    parser.add_argument("--runs", type=int, help="runs of each agent on each environment")
    parser.add_argument("--jobs", type=int, help="worker processes; one for each processor")
    parser.add_argument("--log", type=Path, help="the log of bus group 4, for the study rust")
    given = parser.parse_args(arguments)
    folder = given.out or Path("results") / given.name
    if given.name == "icu-sepsis":  # it fits logs and plays no agents
        from studies.icu_sepsis import study

        print(study(folder, given.runs or 20))
        return 0
    if given.name == "factored":  # its problems are not listed, so it stores no runs
        from studies.factored import study as compare

        print(compare(folder, given.runs or 30))
        return 0
    if given.name == "environments":  # its learners receive no declarations, or some
        from studies.black_boxes import study as play_all

        print(play_all(folder, 20 if given.runs is None else given.runs, given.jobs))
        return 0
    if given.name == "rust":  # it fits a log that is not part of the repository
        from studies.rust import study as make_table

        if given.log is None:
            parser.error("the study rust needs --log FILE")
        print(make_table(given.log, folder))
        return 0
    experiment = load_study(given.name)
    if given.runs is not None:
        experiment = experiment.with_seeds(given.runs, experiment.seeds.first)
    reporter = make_reporter()
    with keep_on_interrupt(folder):
        outcome = execute(list_runs(experiment), folder, given.jobs, reporter=reporter)
    if code := print_outcome(outcome, folder):
        return code
    found = find(experiment, load_runs(folder, timing=True))
    files = [
        write_file(folder / "table.csv", to_csv(Cell._fields, found.cells)),
        write_file(folder / "table.md", found.table),
    ]
    for name, figure in found.figures.items():
        files += save_figure(figure, folder / name)
    print(found.table)
    print("written:", *files, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
