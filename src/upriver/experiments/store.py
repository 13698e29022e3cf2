"""The results folder: one Parquet file per run, and existing means done.

    DIR/env=riverswim-6/agent=ucrl-mnl/<setting>-<seed>.parquet
    DIR/_upriver.json                    format and version of the files
    DIR/_specs/<name>-<hash>.toml        the experiments that were run here
    DIR/_failed/...json                  runs that raised, with their traceback

A file is written under another name, synced and linked to its own, so that it is there complete
or not at all; a name that exists is never written again. Readers of data sets skip names that
begin with an underscore, so pandas, polars and DuckDB read the folder as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upriver.experiments.runspec import RunSpec
from upriver.experiments.spec import Experiment

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
MARKER = "_upriver.json"
STALE = 3600.0  # seconds after which a temporary file belongs to nobody: writing takes a few ms


class StorageFailed(OSError):
    """The folder cannot be written: one sentence, and no further run is started."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"cannot write {path}: {error.strerror or error}; finished runs are kept, "
            "and the same command continues once this is solved"
        )


@dataclass(frozen=True)
class Store:
    root: Path

    @staticmethod
    def create(root: str | Path) -> Store:
        """The store in a folder, made if absent; refuses one that another version wrote."""
        from upriver import __version__

        store = Store(Path(root))
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
        if number != FORMAT:
            raise ValueError(
                f"{self.root} was written by upriver {version} in format {number!r}; this version "
                f"reads format {FORMAT}"
            )
        return found

    def path(self, run: RunSpec) -> Path:
        return self.root / f"env={run.env}" / f"agent={run.label}" / f"{run.key}.parquet"

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
        part = self.root / "_tmp" / f"{path.name}.{platform.node()}.{os.getpid()}"
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
            raise StorageFailed(path, error) from error
        finally:
            remove_quietly(part)

    def sweep(self) -> None:
        """Remove what killed writers left behind."""
        folder = self.root / "_tmp"
        for part in folder.iterdir() if folder.is_dir() else ():
            try:
                if time.time() - part.stat().st_mtime > STALE:
                    part.unlink()
            except OSError:
                continue  # somebody else was quicker

    def record_spec(self, experiment: Experiment) -> None:
        text = experiment.to_toml().encode()
        name = f"{experiment.name}-{hashlib.sha256(text).hexdigest()[:8]}.toml"
        if not (self.root / "_specs" / name).exists():
            self.write(self.root / "_specs" / name, text)

    def failure_path(self, run: RunSpec) -> Path:
        place = f"env={run.env}-agent={run.label}-{run.key}.json"
        return self.root / "_failed" / place

    def record_failure(self, run: RunSpec, error: str, traceback: str) -> None:
        record = {"error": error, "traceback": traceback, "run": json.loads(run.to_json())}
        text = json.dumps(record, indent=1)
        self.write(self.failure_path(run), text.encode(), replace=True)

    def files(self) -> list[Path]:
        """The run files, in one order whatever the file system."""
        return sorted(self.root.glob("env=*/agent=*/*.parquet"))

    def check(self, run: RunSpec) -> str | None:
        """What is wrong with the file of a run, or None. Reads a few bytes only."""
        return broken(self.path(run))


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


def remove_quietly(part: Path) -> None:
    try:
        part.unlink(missing_ok=True)
    except OSError:
        return


def broken(path: Path) -> str | None:
    """Whether a file is visibly no complete Parquet file: its marks at both ends."""
    try:
        with open(path, "rb") as file:
            head = file.read(4)
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - 8, 0))
            tail = file.read(8)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if end < 12 or head != b"PAR1" or tail[4:] != b"PAR1":
        return f"{path} is not a complete Parquet file"
    if int.from_bytes(tail[:4], "little") > end - 12:
        return f"{path} is not a complete Parquet file"
    return None


def to_bytes(run: RunSpec, table: pa.Table) -> bytes:
    """A run's Parquet file, its spec and where it ran in the metadata."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from upriver import __version__

    about = {
        "format": FORMAT,
        "upriver": __version__,
        "run": json.loads(run.to_json()),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "seconds": float(np.sum(table["seconds"].to_numpy())),
    }
    sink = pa.BufferOutputStream()
    metadata = {**(table.schema.metadata or {}), b"upriver": json.dumps(about, sort_keys=True)}
    pq.write_table(table.replace_schema_metadata(metadata), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def about(schema: pa.Schema, path: Path) -> dict[str, Any]:
    """What a run file says about itself, or a ValueError that names it."""
    text = (schema.metadata or {}).get(b"upriver")
    if text is None:
        raise ValueError(f"{path} was not written by upriver")
    found = json.loads(text)
    if found.get("format") != FORMAT:
        raise ValueError(f"{path} has format {found.get('format')!r}, not {FORMAT}")
    return found
