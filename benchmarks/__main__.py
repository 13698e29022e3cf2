"""`upriver bench`: our speed, as ratios to peers in the same run."""

from __future__ import annotations

from pathlib import Path


def bench(
    *families: str,
    peers: bool = False,
    rlberry_python: Path | None = None,
    quick: bool = False,
    out: Path | None = None,
    against: Path | None = None,
) -> int:
    """Measure speed and memory, each figure as a ratio to something timed in the same minute.

    Example: upriver bench planning fits --peers --out bench.json

    Parameters
    ----------
    families
        episodes, growth, planning, threads, endless, fits, frames, logs, steps, memory, pooled,
        dense, startup; all of them if absent.
    peers
        Also compare with QuantEcon, xlogit and rlberry-scool, those that are installed.
    rlberry_python
        The Python of an environment with rlberry-scool, which pins old packages. The variable
        UPRIVER_RLBERRY_PYTHON says the same.
    quick
        Small sizes and few repeats: to see that everything runs.
    out
        A file for the figures: all of them as .json, or the table as .md.
    against
        Figures of another version, written with --out: what each costs now is shown beside.
    """
    import os
    import subprocess
    import sys

    from upriver.experiments.workers import ONE_THREAD

    if any(os.environ.get(name) != "1" for name in ONE_THREAD):
        # BLAS reads its number of threads when it is loaded, which is before we are asked
        environment = os.environ | dict.fromkeys(ONE_THREAD, "1")
        words = [sys.executable, "-m", "upriver", "bench", *families]
        words += ["--peers"] * peers + ["--quick"] * quick
        words += ["--rlberry-python", str(rlberry_python)] if rlberry_python else []
        words += ["--out", str(out)] if out else []
        words += ["--against", str(against)] if against else []
        return subprocess.run(words, env=environment, check=False).returncode
    import benchmarks as measured
    from benchmarks import FAMILIES, as_json, as_markdown, as_text
    from benchmarks.against import changes, earlier

    for name in families:
        if name not in FAMILIES:
            raise ValueError(f"family {name!r} is unknown; it must be one of {', '.join(FAMILIES)}")
    if out is not None and out.suffix not in (".json", ".md"):
        raise ValueError(f"--out {out} must be a .json or a .md file")
    named = os.environ.get("UPRIVER_RLBERRY_PYTHON")
    python = rlberry_python or (Path(named) if named else None)
    if python is not None and not python.is_file():
        raise FileNotFoundError(f"--rlberry-python {python} is not a file; it must be a Python")
    before = earlier(against) if against is not None else None
    lines = []
    for line in measured.measure(families or FAMILIES, quick, peers, python):
        print(as_text(line), flush=True)
        lines.append(line)
    if out is not None:
        text = as_markdown(lines) if out.suffix == ".md" else as_json(lines, measured.machine())
        from upriver.mdp.writing import write_file

        write_file(out, text)
        print(f"written: {out}")
    if before is not None:
        version, rows = before
        print(measured.side_by_side(changes(lines, rows), version), end="")
    missed = [line for line in lines if getattr(line, "met", None) is False]
    if missed:
        print(f"{len(missed)} of the figures miss what is asked of them", file=sys.stderr)
    return 1 if missed else 0
