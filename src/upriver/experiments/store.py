"""The results folder: one Parquet file per run, and existing means done.

    DIR/env=riverswim-6/agent=ucrl-mnl/<setting>-<seed>.parquet
    DIR/_upriver.json                    format and version of the files
    DIR/_specs/<name>-<hash>.toml        the experiments that were run here, ready to run again
    DIR/_inputs/...                      the MDPs and features that those specs need
    DIR/_runs/<hash>.json                every list of runs that was asked for
    DIR/_running/<hash>.json             what is being played now, by whoever is alive
    DIR/_failed/...json                  runs that raised, with their traceback

A file is written under another name, synced and linked to its own, so that it is there complete
or not at all; a name that exists is never written again. Readers of data sets skip names that
begin with an underscore, so pandas, polars and DuckDB read the folder as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from upriver.experiments.runfile import (
    FORMAT,
    READABLE,
    broken,
    folder_name,
    place_of,
    to_bytes,
)
from upriver.experiments.runspec import RunSpec
from upriver.experiments.trust import keep_code
from upriver.mdp import FiniteMDP

if TYPE_CHECKING:
    import pyarrow as pa

    from upriver.experiments.spec import Experiment

MARKER = "_upriver.json"
STALE = 3600.0  # seconds after which a temporary file belongs to nobody: writing takes a few ms
SMALL = 16_000_000
"""Bytes up to which a file that a spec names is copied into the folder."""
LONGEST = 20_000
"""Characters of a traceback that are kept, at most."""


class StorageFailed(OSError):
    """The folder cannot be written: one sentence, and no further run is started."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"cannot write {path}: {reason}; finished runs are kept, "
            "and the same command continues once this is solved"
        )


@dataclass(frozen=True)
class Store:
    root: Path
    """Absolute, so that an agent that changes the current folder changes nothing here."""

    @staticmethod
    def create(root: str | Path) -> Store:
        """The store in a folder, made if absent; refuses one that another version wrote."""
        from upriver import __version__

        store = Store(Path(os.path.abspath(root)))
        marker = store.root / MARKER
        if not marker.exists():
            if store.files():
                raise ValueError(f"{root} holds run files but no {MARKER}; choose another folder")
            text = json.dumps({"format": FORMAT, "upriver": __version__})
            store.write(marker, text.encode())
        found = store.marker()
        if found["upriver"] != __version__:
            raise ValueError(
                f"{root} holds runs of upriver {found['upriver']}, and this is {__version__}; "
                "runs of two versions are not mixed: choose another folder"
            )
        store.sweep()
        return store

    @staticmethod
    def open(root: str | Path) -> Store:
        """The store in a folder that exists, for reading."""
        store = Store(Path(root))
        if not store.root.is_dir():
            raise ValueError(f"{root} is not a folder of results")
        if not (store.root / MARKER).exists():
            raise ValueError(f"{root} is not a folder of results: it has no {MARKER}")
        store.marker()
        return store

    def marker(self) -> dict[str, Any]:
        path = self.root / MARKER
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            number, version = found["format"], found["upriver"]
        except (ValueError, KeyError, TypeError, UnicodeDecodeError):
            raise ValueError(f"{path} is damaged; it should name a format and a version") from None
        if number not in READABLE:
            raise ValueError(
                f"{self.root} was written by upriver {version} in format {number!r}; this version "
                f"reads format {' and '.join(map(str, READABLE))}"
            )
        return found

    def path(self, run: RunSpec) -> Path:
        return self.root / place_of(run.env, run.label, run.key)

    def has(self, run: RunSpec) -> bool:
        return self.path(run).exists()

    def save(self, run: RunSpec, table: pa.Table) -> bool:
        """Write a run; False where it was there already, and is left as it was."""
        return self.save_bytes(run, to_bytes(run, table))

    def save_bytes(self, run: RunSpec, data: bytes) -> bool:
        written = self.write(self.path(run), data)
        self.failure_path(run).unlink(missing_ok=True)
        return written

    def write(self, path: Path, data: bytes, replace: bool = False) -> bool:
        """Temporary name, sync, then the name itself, which only one writer can take.

        The folder entry is not synced: after a power cut a run may be missing, never torn.
        """
        root = Path(os.path.realpath(self.root))
        if not Path(os.path.realpath(path)).is_relative_to(root):
            raise StorageFailed(path, f"it lies outside {self.root}")
        if path.name != MARKER and not (self.root / MARKER).exists():
            raise StorageFailed(path, f"{self.root} was removed or emptied while it was in use")
        part = self.root / "_tmp" / f"{uuid4().hex}.part"
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(part, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                os.replace(part, path)
                return True
            return take_name(part, path)
        except OSError as error:
            raise StorageFailed(path, error.strerror or str(error)) from error
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what killed writers left behind."""
        for name in ("_tmp", "_running"):
            folder = self.root / name
            for part in folder.iterdir() if folder.is_dir() else ():
                with suppress(OSError):  # somebody else was quicker
                    if time.time() - part.stat().st_mtime > STALE:
                        part.unlink()

    def record_spec(self, experiment: Experiment) -> None:
        """Keep an experiment and copies of the small files it names: it can be repeated."""
        text = experiment.placed(self.kept).to_toml(self.root / "_specs").encode()
        name = f"{folder_name(experiment.name)}-{hashlib.sha256(text).hexdigest()[:8]}.toml"
        if not (self.root / "_specs" / name).exists():
            self.write(self.root / "_specs" / name, text)
        keep_code(experiment.to_data(), self.root / "_specs")

    def kept(self, file: Path) -> Path:
        """The copy of a small file in this folder, made if absent; a large one as it is."""
        inputs = self.root / "_inputs"
        if file.is_relative_to(inputs) or file.stat().st_size > SMALL:
            return file
        data = file.read_bytes()
        if file.suffix == ".toml":  # an MDP whose numbers lie in other files
            FiniteMDP.load(file).save(part := self.root / "_tmp" / f"{uuid4().hex}.npz")
            data = part.read_bytes()
            part.unlink()
        suffix = ".npz" if file.suffix == ".toml" else file.suffix
        name = f"{folder_name(file.stem)}-{hashlib.sha256(data).hexdigest()[:8]}{suffix}"
        if not (inputs / name).exists():
            self.write(inputs / name, data)
        return inputs / name

    def record_runs(self, runs: Iterable[RunSpec]) -> None:
        """Keep a list of runs, so that anybody who looks knows what there is to do."""
        groups: dict[tuple[str, str, str], list[int]] = {}
        for run in runs:
            groups.setdefault((run.env, run.label, run.setting), []).append(run.seed)
        text = json.dumps([[*group, seeds] for group, seeds in groups.items()]).encode()
        path = self.root / "_runs" / f"{hashlib.sha256(text).hexdigest()[:16]}.json"
        if not path.exists():
            self.write(path, text)

    def failure_path(self, run: RunSpec) -> Path:
        env, label = folder_name(run.env), folder_name(run.label)
        return self.root / "_failed" / f"env={env}-agent={label}-{run.key}.json"

    def record_failure(self, run: RunSpec, error: str, traceback: str) -> None:
        kept = {"error": error, "traceback": traceback[-LONGEST:], "run": run.to_data()}
        self.write(self.failure_path(run), json.dumps(kept, indent=1).encode(), replace=True)

    def files(self, problems: list[str] | None = None) -> list[Path]:
        """The run files, in one order whatever the file system.

        A folder that cannot be read is an error, or one more sentence in `problems`.
        """
        found: list[Path] = []
        for place in self.folders(self.root, "env=", problems):
            for agent in self.folders(place, "agent=", problems):
                inside = listing(agent, problems)
                found += [path for path in inside if path.suffix == ".parquet"]
        return sorted(found)

    @staticmethod
    def folders(parent: Path, prefix: str, problems: list[str] | None) -> list[Path]:
        return [p for p in listing(parent, problems) if p.name.startswith(prefix) and p.is_dir()]

    def check(self, run: RunSpec) -> str | None:
        """What is wrong with the file of a run, or None."""
        return broken(self.path(run))


def listing(folder: Path, problems: list[str] | None) -> list[Path]:
    try:
        return [Path(folder, entry.name) for entry in os.scandir(folder)]
    except FileNotFoundError:
        return []
    except OSError as error:
        sentence = f"{folder} cannot be read: {error.strerror}"
        if problems is None:
            raise ValueError(sentence) from error
        problems.append(sentence)
        return []


def take_name(part: Path, path: Path) -> bool:
    """Give a finished file its name unless the name is taken."""
    try:
        os.link(part, path)
        return True
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        if path.exists():
            return False
        os.rename(part, path)
        return True
