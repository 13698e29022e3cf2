"""The results folder: one Parquet file per run, and a run whose file exists is done.

    DIR/env=riverswim-6/agent=ucrl-mnl/<setting>-<seed>.parquet
    DIR/_upriver.json                    format and version of the files
    DIR/_specs/<name>-<digest>.toml      the experiments that were run here
    DIR/_commands/<digest>.txt           the command lines that made runs here
    DIR/_failed/...json                  runs that raised an error, with their traceback
    DIR/_lock                            held by the process that writes into the folder

A file is written under another name, synced and renamed, so that it is complete or absent; the file
of a run is never written again. A digest in each run file covers all its bytes; those of
experiments and commands are part of their names. They find damage and not forgery. Readers of
data sets skip names that begin with an underscore, so pandas, polars and DuckDB read the folder.

`read_records` is the one reader: every table, figure, report and check goes through it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np
from pydantic import TypeAdapter

from upriver.checks import check_kinds
from upriver.display import add_repr
from upriver.experiments.build import RunSpec
from upriver.mdp.writing import write_file

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 6
MARKER = "_upriver.json"
BLANK = b"0" * 64
"""Stands where the digest of a run file will be while the digest is computed."""
MAX_TEXT = 2**24
"""Bytes of the largest file beside the runs; a longer one was not written by this package."""
MAX_TRACEBACK = 20_000
MAX_NAME = 80
"""Characters of the name of a folder, but for its `env=` or `agent=`."""
MAX_VALUE = 1e90
"""The largest number in a run file; statistics of larger ones would overflow."""
NUMBERS = ("return", "value", "optimal_value", "seconds", "uniform_value")


class StorageFailed(OSError):
    """The folder cannot be written: one sentence, and no further run is started."""

    def __init__(self, path: Path, reason: str) -> None:
        then = "finished runs are kept, and the same command continues once this is solved"
        super().__init__(f"cannot write {path}: {reason}; {then}")


class BadFile(ValueError):
    """A file of a results folder cannot be used; the sentence begins with its name."""

    exit_code = 1  # of a command: the call was right, the folder is not


def make_folder_name(label: str) -> str:
    """Return the name of a label's folder: the label if every file system accepts it."""
    if len(label) <= MAX_NAME and re.fullmatch(r"\w([\w .+()@,-]*[\w+()@,-])?", label, re.ASCII):
        return label
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", label)[: MAX_NAME - 13]
    return f"{safe}~{hashlib.sha256(label.encode(errors='surrogatepass')).hexdigest()[:12]}"


def run_path(run: RunSpec) -> Path:
    """Return where the file of a run lies, relative to the root of its folder."""
    env, label = make_folder_name(run.env), make_folder_name(run.label)
    return Path(f"env={env}", f"agent={label}", f"{run.key}.parquet")


def to_bytes(run: RunSpec, table: pa.Table) -> bytes:
    """Return a run's Parquet file; its metadata hold the run, the machine and a digest of it all.

    The digest is the SHA-256 of the file in which zeros stand in its place. Pages have checksums as
    well, for other readers.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from upriver import __version__

    for name in NUMBERS:
        column = np.from_dlpack(table[name].combine_chunks())
        if not (np.abs(column) <= MAX_VALUE).all():  # false for nan
            raise ValueError(f"column {name!r} holds a number that is not below {MAX_VALUE:g}")
    about: dict[str, Any] = {"format": FORMAT, "upriver": __version__, "run": run.to_data()}
    about |= {"platform": platform.platform(), "python": platform.python_version()}
    seconds = float(np.sum(np.from_dlpack(table["seconds"].combine_chunks())))
    about |= {"numpy": np.__version__, "seconds": seconds, "digest": BLANK.decode()}
    sink = pa.BufferOutputStream()
    bare = table.replace_schema_metadata(None)
    # the schema as Arrow keeps it would hold all metadata a second time
    options = {"compression": "zstd", "write_page_checksum": True, "store_schema": False}
    with pq.ParquetWriter(sink, bare.schema, **options) as writer:
        writer.write_table(bare)
        said = {b"upriver": json.dumps(about, sort_keys=True).encode()}
        writer.add_key_value_metadata({**(table.schema.metadata or {}), **said})
    data = sink.getvalue().to_pybytes()
    return data.replace(BLANK, hashlib.sha256(data).hexdigest().encode(), 1)


RUN = TypeAdapter(RunSpec)


class Record(NamedTuple):
    """One run file."""

    run: RunSpec
    about: dict[str, Any]
    """Version, machine and total seconds of the run."""
    table: pa.Table
    """One row per episode, see `run_one`."""
    unit: str
    """What a row is: "episode", or "step" for an infinite horizon."""


def read_run(path: Path, rows: bool = True) -> Record:
    """Read and verify a run file; raise BadFile with one sentence that names it.

    Without `rows` the table is left empty. What is read then is quick to read, and enough to know
    that the file is as it was written and holds the run that belongs at its place.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if not path.is_file():  # such as a pipe, which would be read without end
            raise ValueError("it is no regular file")
        with pq.ParquetFile(path) as file:  # its end only, which says how many rows there are
            metadata, n_rows = file.schema_arrow.metadata or {}, file.metadata.num_rows
        about = json.loads(metadata[b"upriver"])
        if about["format"] != FORMAT:
            raise ValueError(f"it has format {about['format']!r}, not {FORMAT}")
        run = RUN.validate_python(about["run"])
        if n_rows != run.episodes:
            raise ValueError(f"it has {n_rows} rows; the run has {run.episodes} episodes")
        data, digest = read_bytes(path, MAX_TEXT + 100 * n_rows), str(about["digest"])
        if hashlib.sha256(data.replace(digest.encode(), BLANK, 1)).hexdigest() != digest:
            raise ValueError("its bytes are not those that were written")
        unit = metadata.get(b"unit", b"episode").decode()
        file = pq.ParquetFile(pa.BufferReader(data))
        table = file.read() if rows else file.schema_arrow.empty_table()
    except Exception as bad:
        why = " ".join(str(bad)[:300].split())
        raise BadFile(f"{path} is damaged, or not a run file of this version: {why}") from bad
    own = run_path(run)
    if Path(*path.parts[-3:]) != own:
        raise BadFile(f"{path} holds the run that belongs at {own}; it was moved or copied")
    return Record(run, about, table.replace_schema_metadata(None), unit)


def read_bytes(path: Path, most: int = MAX_TEXT) -> bytes:
    """Return the bytes of a regular file of at most so many, or raise BadFile."""
    try:
        if path.is_file() and path.stat().st_size <= most:
            return path.read_bytes()
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror}") from error
    raise BadFile(f"{path} is no regular file of at most {most} bytes, as this package writes")


def read_named(path: Path) -> bytes:
    """Return the bytes of a file whose name ends with their digest, or raise BadFile."""
    data = read_bytes(path)
    if short_digest(data) != path.stem[-16:]:
        raise BadFile(f"{path} is damaged: its contents are not those that were written")
    return data


@dataclass(frozen=True)
class Store:
    """A results folder that runs are written into."""

    root: Path
    """Absolute, so that an agent that changes the current folder changes nothing here."""

    @staticmethod
    def create(root: str | Path) -> Store:
        """Return the store in a folder, made if absent; refuse one of another version."""
        from upriver import __version__

        store = Store(Path(os.path.abspath(root)))
        if store.root.is_file():
            raise ValueError(f"{root} is a file; it must be a folder of results, or a new one")
        with store.lock():  # of two commands that start together one makes the folder
            if not (store.root / MARKER).exists():
                if store.files():
                    raise ValueError(f"{root} has run files but no {MARKER}; choose another folder")
                marker = {"format": FORMAT, "upriver": __version__}
                store.write(store.root / MARKER, json.dumps(marker).encode())
        if (version := store.read_version()) != __version__:
            raise ValueError(
                f"{root} holds runs of upriver {version}, and this is {__version__}; "
                "runs of two versions are not mixed: choose another folder"
            )
        return store

    @staticmethod
    def open(root: str | Path) -> Store:
        """Return the store in a folder that exists, for reading."""
        store = Store(Path(root))
        if not store.root.is_dir():
            what = "is a file" if store.root.exists() else "does not exist"
            raise ValueError(f"{root} {what}; it must be a folder of results")
        if not (store.root / MARKER).exists():
            raise ValueError(f"{root} is not a folder of results: it has no {MARKER}")
        store.read_version()
        return store

    def read_version(self) -> str:
        """Return the version that wrote the folder; refuse an unknown format."""
        path = self.root / MARKER
        try:
            found = json.loads(read_bytes(path))
            number, version = found["format"], str(found["upriver"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            why = "it must name a format and a version"
            raise BadFile(f"{path} is damaged; {why}") from error
        if number != FORMAT:
            theirs = f"{self.root} was written by upriver {version} in format {number!r}"
            raise ValueError(f"{theirs}; this version reads format {FORMAT}")
        return version

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for one writer; the system releases it when the process ends."""
        path = self.root / "_lock"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            file = open(path, "a+b")  # noqa: SIM115
        except OSError as error:
            raise StorageFailed(path, error.strerror or str(error)) from error
        with file:
            if not lock_file(file):
                raise ValueError(
                    f"{self.root} is being written by another process; wait for it to finish, or "
                    "choose another folder with --out"
                )
            shutil.rmtree(self.root / "_tmp", ignore_errors=True)  # of a writer that was killed
            yield

    def path(self, run: RunSpec) -> Path:
        return self.root / run_path(run)

    def save(self, run: RunSpec, data: bytes) -> None:
        """Write the file of a run; one that exists is left as it was."""
        if not self.path(run).is_file():
            self.write(self.path(run), data)
        self.failure_path(run).unlink(missing_ok=True)

    def write(self, path: Path, data: bytes) -> None:
        """Write a whole file or none, with a sentence if that fails.

        No reader of data sets sees the part that is being written.
        """
        if path.name != MARKER and not (self.root / MARKER).exists():
            raise StorageFailed(path, f"{self.root} was removed or emptied while it was in use")
        part = self.root / "_tmp" / uuid4().hex
        try:
            for file in (part, path):
                file.parent.mkdir(parents=True, exist_ok=True)
            os.replace(write_file(part, data), path)
        except OSError as error:
            raise StorageFailed(path, error.strerror or str(error)) from error

    def record(self, folder: str, text: str, name: str = "", suffix: str = ".txt") -> None:
        """Keep a text in a file whose name ends with its digest."""
        data = text.encode()
        name = f"{make_folder_name(name)}-" if name else ""
        self.write(self.root / folder / f"{name}{short_digest(data)}{suffix}", data)

    def failure_path(self, run: RunSpec) -> Path:
        env, label = make_folder_name(run.env), make_folder_name(run.label)
        return self.root / "_failed" / f"env={env}-agent={label}-{run.key}.json"

    def record_failure(self, run: RunSpec, error: str, traceback: str) -> None:
        kept = {"error": error, "traceback": traceback[-MAX_TRACEBACK:], "run": run.to_data()}
        self.write(self.failure_path(run), json.dumps(kept, indent=1).encode())

    def files(self, problems: list[str] | None = None) -> list[Path]:
        """Return the run files, in one order on all file systems.

        A folder that cannot be read is an error, or one more sentence of `problems`.
        """

        def report(error: OSError) -> None:
            sentence = f"{error.filename} cannot be read: {error.strerror}"
            if problems is None:
                raise BadFile(sentence)
            problems.append(sentence)

        found: list[Path] = []
        for folder, inner, names in os.walk(self.root, onerror=report, followlinks=True):
            if Path(folder) == self.root:
                inner[:] = [name for name in inner if name.startswith("env=")]
            else:
                found += [Path(folder, name) for name in names if name.endswith(".parquet")]
        return sorted(found)


def read_records(folder: str | Path, problems: list[str] | None = None) -> Iterator[Record]:
    """Read every run of a results folder, verified, in the order of the file names.

    A sentence about each file or folder that cannot be used is appended to `problems`; without a
    list the first is a ValueError.
    """
    for path in Store.open(folder).files(problems):
        try:
            yield read_run(path)
        except BadFile as error:
            if problems is None:
                raise
            problems.append(str(error))


@add_repr
class Checked(NamedTuple):
    """The result of looking at every file of a folder."""

    whole: int
    """Run files that are as they were written."""
    problems: list[str]
    """One sentence for each file that is damaged, was moved, or was not written by upriver."""


@check_kinds
def check(folder: str | Path) -> Checked:
    """Verify every file of a results folder; nothing is changed."""
    root, problems = Path(folder), list[str]()
    try:
        whole = sum(1 for _ in read_records(root, problems))
    except BadFile as error:  # the marker
        return Checked(0, [str(error)])
    for path in sorted([*root.glob("_specs/*"), *root.glob("_commands/*")]):
        try:
            read_named(path)
        except BadFile as error:
            problems.append(str(error))
    return Checked(whole, problems)


def short_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def lock_file(file: Any) -> bool:
    """Lock an open file for this process without waiting; return False if another has it."""
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the latter is what Windows reports
        return False
    except OSError:  # some network file systems have no locks
        pass
    return True
