"""The results folder: one Parquet file per run, and a run whose file exists is done.

    DIR/env=riverswim-6/agent=ucrl-mnl/<setting>-<seed>.parquet
    DIR/_upriver.json                    format and version of the files
    DIR/_specs/<name>-<digest>.toml      the experiments that were run here, ready to run again
    DIR/_inputs/<digest>/...             the MDPs, features and code that those experiments need
    DIR/_runs/<digest>.json              every list of runs that was requested
    DIR/_failed/...json                  runs that raised an error, with their traceback
    DIR/_lock                            held by the process that writes into the folder

A file is written under another name, synced and linked to its own, so that it is complete or
absent; a name that exists is never written again. Every file is protected by a digest: that of a
run file covers all its bytes, those of the others are part of their names. Readers of data sets
skip names that begin with an underscore, so pandas, polars and DuckDB read the folder as it is.

`read_records` is the one reader: every table, figure, report and check goes through it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np

from upriver.checks import check_kinds
from upriver.display import add_repr
from upriver.experiments.build import RunSpec
from upriver.experiments.registry import IMPORTED

if TYPE_CHECKING:
    import pyarrow as pa

    from upriver.experiments.spec import Experiment

FORMAT = 4
MARKER = "_upriver.json"
BLANK = b"0" * 64
SEAL = re.compile(rb'"seal": "([0-9a-f]{64})"')
STALE = 3600.0  # seconds after which a temporary file belongs to nobody: writing takes a few ms
MAX_COPIED = 16_000_000
"""Bytes up to which a file that an experiment names is copied into the folder."""
MAX_TRACEBACK = 20_000
MAX_NAME = 80
"""Characters of the name of a folder, but for its `env=` or `agent=`."""


NUMBERS = ("return", "value", "optimal_value", "uniform_value", "seconds")


class StorageFailed(OSError):
    """The folder cannot be written: one sentence, and no further run is started."""

    def __init__(self, path: Path, reason: str) -> None:
        then = "finished runs are kept, and the same command continues once this is solved"
        super().__init__(f"cannot write {path}: {reason}; {then}")


class BadFile(ValueError):
    """Something wrong in a results folder; the sentence begins with the file or folder."""

    def __init__(self, kind: str, sentence: str, place: Path | None = None) -> None:
        super().__init__(sentence)
        self.kind = kind  # damaged, foreign, moved, duplicate or unreadable
        self.place = place  # where the file belongs, if it was moved


def make_folder_name(label: str) -> str:
    """Return the name of a label's folder: the label if every file system accepts it."""
    if len(label) <= MAX_NAME and re.fullmatch(r"\w([\w .+()@,-]*[\w+()@,-])?", label, re.ASCII):
        return label
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", label)[: MAX_NAME - 13]
    return f"{safe}~{hashlib.sha256(label.encode(errors='surrogatepass')).hexdigest()[:12]}"


def run_path(env: str, label: str, key: str) -> Path:
    """Return where the file of a run lies, relative to the root of its folder."""
    return Path(
        f"env={make_folder_name(env)}", f"agent={make_folder_name(label)}", f"{key}.parquet"
    )


def to_bytes(run: RunSpec, table: pa.Table) -> bytes:
    """Return a run's Parquet file; its metadata hold the run, the machine and a digest of it all.

    The digest, `seal`, is the SHA-256 of the file in which its own place holds zeros. Pages have
    checksums as well, for readers other than this one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from upriver import __version__

    seconds = float(np.sum(np.from_dlpack(table["seconds"].combine_chunks())))
    about: dict[str, Any] = {"format": FORMAT, "upriver": __version__, "run": run.to_data()}
    about |= {"platform": platform.platform(), "python": platform.python_version()}
    about |= {"numpy": np.__version__, "seconds": seconds, "seal": BLANK.decode()}
    sink = pa.BufferOutputStream()
    bare = table.replace_schema_metadata(None)
    # the schema as Arrow keeps it would hold all metadata a second time
    options = {"compression": "zstd", "write_page_checksum": True, "store_schema": False}
    with pq.ParquetWriter(sink, bare.schema, **options) as writer:
        writer.write_table(bare)
        said = {b"upriver": json.dumps(about, sort_keys=True).encode()}
        writer.add_key_value_metadata({**(table.schema.metadata or {}), **said})
    data = sink.getvalue().to_pybytes()
    (place,) = SEAL.finditer(data)
    seal = hashlib.sha256(data).hexdigest().encode()
    return data[: place.start(1)] + seal + data[place.end(1) :]


class Record(NamedTuple):
    """One run file."""

    run: RunSpec
    about: dict[str, Any]
    """Version, machine and total seconds of the run."""
    table: pa.Table
    """One row per episode, see `run_one`."""
    unit: str
    """What a row is: "episode", or "step" for an infinite horizon."""
    detail: str | None
    """JSON, see `experiments.detail`."""


def read_run(path: Path) -> Record:
    """Read and verify a run file; raise BadFile with one sentence that names it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = read_sealed(path)
    try:  # the digest is right, so what fails here was written so, by another version or program
        file = pq.ParquetFile(pa.BufferReader(data))
        metadata, table = file.schema_arrow.metadata, file.read()
        about = json.loads(metadata[b"upriver"])
        if about["format"] != FORMAT:
            raise ValueError(f"it has format {about['format']!r}, not {FORMAT}")
        run = RunSpec(**about["run"])
        own = run_path(run.env, run.label, run.key)
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError) as error:
        sentence = f"{path} does not hold a run of this version: {error}"
        raise BadFile("foreign", sentence) from error
    if Path(*path.parts[-3:]) != own:
        sentence = f"{path} holds the run that belongs at {own}; it was moved or copied"
        raise BadFile("moved", sentence, own)
    if mistake := find_mistake(run, table):
        raise BadFile("damaged", f"{path} is damaged: {mistake}")
    unit = metadata.get(b"unit", b"episode").decode()
    detail = metadata[b"detail"].decode() if b"detail" in metadata else None
    return Record(run, about, table.replace_schema_metadata(None), unit, detail)


def read_sealed(path: Path) -> bytes:
    """Return the bytes of a run file whose digest is right; raise BadFile otherwise."""
    if path.exists() and not path.is_file():  # such as a link to a device, which has no end
        raise BadFile("damaged", f"{path} is no regular file")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadFile("damaged", f"{path} cannot be read: {error.strerror}") from error
    complete = len(data) >= 12 and data[:4] == data[-4:] == b"PAR1"
    if not complete or int.from_bytes(data[-8:-4], "little") > len(data) - 12:
        raise BadFile("damaged", f"{path} is not a complete Parquet file")
    found = SEAL.search(data)
    if found is None:
        if b'"upriver":' in data:
            raise BadFile("damaged", f"{path} is damaged: its digest is missing")
        raise BadFile("foreign", f"{path} was not written by upriver")
    first, last = found.span(1)
    if hashlib.sha256(data[:first] + BLANK + data[last:]).hexdigest().encode() != found[1]:
        raise BadFile("damaged", f"{path} is damaged: its bytes are not those that were written")
    return data


def find_mistake(run: RunSpec, table: pa.Table) -> str | None:
    """Return what contradicts the run in its rows, or None."""
    import pyarrow as pa

    kinds = {"seed": pa.int64(), "episode": pa.int32(), **dict.fromkeys(NUMBERS, pa.float64())}
    for name in ("setting", *kinds):
        if name not in table.column_names:
            return f"it has no column {name!r}"
        if table[name].null_count or (name in kinds and table[name].type != kinds[name]):
            return f"column {name!r} is {table[name].type}; it must be {kinds.get(name, 'text')}"
    if len(table) != run.episodes or run.episodes == 0:
        return f"it has {len(table)} rows; the run has {run.episodes} episodes"
    columns = {name: np.from_dlpack(table[name].combine_chunks()) for name in kinds}
    for name in NUMBERS:
        if not np.isfinite(columns[name]).all():
            return f"column {name!r} holds a number that is not finite"
    if (columns["seed"] != run.seed).any():
        return f"its rows have seed {columns['seed'][0]}; the run has seed {run.seed}"
    if (columns["episode"] != np.arange(1, run.episodes + 1)).any():
        return "its episodes are not numbered 1, 2, 3, ..."
    if set(table["setting"].unique().to_pylist()) != {run.setting}:
        return f"its rows have another setting than the run, {run.setting}"
    return None


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
        if not (store.root / MARKER).exists():
            if store.files():
                raise ValueError(f"{root} holds run files but no {MARKER}; choose another folder")
            store.write(store.root / MARKER, make_marker(__version__).encode())
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
        if not (store.root / MARKER).exists():
            raise ValueError(f"{root} is not a folder of results: it has no {MARKER}")
        store.read_version()
        return store

    def read_version(self) -> str:
        """Return the version that wrote the folder; refuse an unknown format."""
        path = self.root / MARKER
        try:
            text = path.read_text(encoding="utf-8")
            found = json.loads(text)
            number, version = found["format"], str(found["upriver"])
        except (OSError, ValueError, KeyError, TypeError):
            raise ValueError(f"{path} is damaged; it must name a format and a version") from None
        if number != FORMAT:
            theirs = f"{self.root} was written by upriver {version} in format {number!r}"
            raise ValueError(f"{theirs}; this version reads format {FORMAT}")
        if text != make_marker(version):
            raise ValueError(f"{path} is damaged: its contents are not those that were written")
        return version

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for one writer; the system releases it when the process ends."""
        path = self.root / "_lock"
        try:
            file = open(path, "a+b")  # noqa: SIM115
        except OSError as error:
            raise StorageFailed(path, error.strerror or str(error)) from error
        with file:
            if not lock_file(file):
                raise ValueError(
                    f"{self.root} is being written by another process; wait for it to finish, or "
                    "choose another folder with --out"
                )
            for part in (self.root / "_tmp").glob("*"):  # of writers that were killed
                with suppress(OSError):
                    if time.time() - part.stat().st_mtime > STALE:
                        part.unlink()
            yield

    def path(self, run: RunSpec) -> Path:
        return self.root / run_path(run.env, run.label, run.key)

    def has(self, run: RunSpec) -> bool:
        return self.path(run).exists()

    def save(self, run: RunSpec, data: bytes) -> bool:
        """Write the file of a run; return False if it exists, and leave it as it was."""
        written = self.write(self.path(run), data)
        self.failure_path(run).unlink(missing_ok=True)
        return written

    def write(self, path: Path, data: bytes, replace: bool = False) -> bool:
        """Write under a temporary name, sync, then take the name, which one writer can do.

        The folder entry is not synced: after a power cut a run may be missing, never incomplete.
        """
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self.root)):
            raise StorageFailed(path, f"it lies outside {self.root}")
        gone = f"{self.root} was removed or emptied while it was in use"
        if path.name != MARKER and not (self.root / MARKER).exists():
            raise StorageFailed(path, gone)
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
        except FileNotFoundError as error:  # since the look at the marker
            raise StorageFailed(path, gone) from error
        except OSError as error:
            raise StorageFailed(path, error.strerror or str(error)) from error
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)

    def record_experiment(self, experiment: Experiment) -> None:
        """Keep an experiment and copies of the small files it needs, to repeat it."""
        specs = self.root / "_specs"

        def place(file: Path) -> Path:
            return relative_to(self.copy_input(file), specs)

        text = experiment.to_toml(place)
        named = [entry.name for entry in experiment.environments]
        named += [name for agent in experiment.agents for name in (agent.agent, agent.features)]
        stems = {str(name).partition(":")[0] for name in named} & set(IMPORTED)
        files = [place(Path(IMPORTED[stem].path)) for stem in sorted(stems)]
        if files:
            options = " ".join(f"--import {file}" for file in files)
            text = f"# This experiment needs code of its own: {options}\n{text}"
        name = f"{make_folder_name(experiment.name)}-{short_digest(text.encode())}.toml"
        if not (specs / name).exists():
            self.write(specs / name, text.encode())

    def copy_input(self, file: Path) -> Path:
        """Return the copy of a small file in this folder, made if absent; a large file itself."""
        inputs = self.root / "_inputs"
        if file.is_relative_to(inputs) or file.stat().st_size > MAX_COPIED:
            return file
        data = file.read_bytes()
        copy = inputs / short_digest(data) / file.name
        if not copy.exists():
            self.write(copy, data)
        return copy

    def record_runs(self, runs: Iterable[RunSpec]) -> None:
        """Keep a list of runs, so that a reader knows which are missing."""
        groups: dict[tuple[str, str, str], list[int]] = {}
        for run in runs:
            groups.setdefault((run.env, run.label, run.setting), []).append(run.seed)
        text = json.dumps([[*group, seeds] for group, seeds in groups.items()]).encode()
        path = self.root / "_runs" / f"{short_digest(text)}.json"
        if not path.exists():
            self.write(path, text)

    def failure_path(self, run: RunSpec) -> Path:
        env, label = make_folder_name(run.env), make_folder_name(run.label)
        return self.root / "_failed" / f"env={env}-agent={label}-{run.key}.json"

    def record_failure(self, run: RunSpec, error: str, traceback: str) -> None:
        kept = {"error": error, "traceback": traceback[-MAX_TRACEBACK:], "run": run.to_data()}
        self.write(self.failure_path(run), json.dumps(kept, indent=1).encode(), replace=True)

    def files(self, problems: list[BadFile] | None = None) -> list[Path]:
        """Return the run files, in one order on all file systems."""
        return [path for path in self.list_all(problems) if path.suffix == ".parquet"]

    def list_all(self, problems: list[BadFile] | None = None) -> list[Path]:
        """Return all files in the folders of the runs.

        A folder that cannot be read is an error, or one more item of `problems`.
        """

        def report(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                sentence = f"{error.filename} cannot be read: {error.strerror}"
                if problems is None:
                    raise BadFile("unreadable", sentence) from error
                problems.append(BadFile("unreadable", sentence))

        found: list[Path] = []
        for folder, folders, names in os.walk(self.root, onerror=report):
            if folder == str(self.root):
                folders[:] = [name for name in folders if name.startswith("env=")]
            else:
                found += [Path(folder, name) for name in names]
        return sorted(found)

    def read_records(self, problems: list[BadFile] | None) -> Iterator[Record]:
        for path in self.files(problems):
            try:
                yield read_run(path)
            except BadFile as error:
                if problems is None:
                    raise
                twin = error.place and self.root / error.place
                if twin and twin.exists() and twin != path:
                    error.kind = "duplicate"
                problems.append(error)


def read_records(folder: str | Path, problems: list[BadFile] | None = None) -> Iterator[Record]:
    """Read every run of a results folder, verified, in the order of the file names.

    A file or folder that cannot be used is appended to `problems` and left out; without a list it
    is a ValueError that names it.
    """
    return Store.open(folder).read_records(problems)


@add_repr
class Checked(NamedTuple):
    """The result of looking at every file of a folder."""

    whole: int
    """Run files that are as they were written."""
    missing: int
    """Runs that were requested and are not stored."""
    problems: list[BadFile]


@check_kinds
def check(folder: str | Path) -> Checked:
    """Verify every file of a results folder; nothing is changed."""
    try:
        store = Store.open(folder)
    except ValueError as error:
        if not (Path(folder) / MARKER).exists():
            raise
        return Checked(0, 0, [BadFile("damaged", str(error))])
    problems: list[BadFile] = []
    whole = sum(1 for _ in store.read_records(problems))
    others = [path for path in store.list_all([]) if path.suffix != ".parquet"]
    problems += [BadFile("foreign", f"{path} is not a run file") for path in others]
    folders = ("_specs/*", "_runs/*", "_inputs/*/*")
    for path in sorted(path for pattern in folders for path in store.root.glob(pattern)):
        digest = path.parent.name if path.parent.parent.name == "_inputs" else path.stem[-16:]
        if not path.is_file() or short_digest(path.read_bytes()) != digest:
            sentence = f"{path} is damaged: its contents are not those that were written"
            problems.append(BadFile("damaged", sentence))
    requested: set[Path] = set()
    for path in (store.root / "_runs").glob("*.json"):
        with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):  # damaged
            for env, label, setting, seeds in json.loads(path.read_text(encoding="utf-8")):
                keys = (f"{str(setting)[:64]}-{int(seed)}" for seed in seeds)
                requested |= {store.root / run_path(env, label, key) for key in keys}
    return Checked(whole, sum(not path.exists() for path in requested), problems)


def make_marker(version: str) -> str:
    """Return the text of the marker, with a digest over the rest of it."""
    digest = short_digest(f"{FORMAT} {version}".encode())
    return json.dumps({"format": FORMAT, "upriver": version, "digest": digest})


def short_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def relative_to(file: Path, folder: Path) -> Path:
    """Return a file as an experiment in `folder` names it."""
    same_drive = file.drive == folder.drive
    return Path(os.path.relpath(file, folder)) if same_drive else file


def lock_file(file: Any) -> bool:
    """Lock an open file for this process without waiting; return False if another has it."""
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # Windows reports a held lock as a permission; some network file systems have no locks
        return not isinstance(error, PermissionError)
    return True


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
