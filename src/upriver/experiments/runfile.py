"""The file of one run: Parquet, its spec in the metadata, and a seal over every bit of it.

Two hashes stand in the metadata. `digest` is of the columns without `seconds`: two machines that
play the same run write the same digest. `seal` is of the whole file, its own place left blank: one
changed bit anywhere breaks it. Pages carry checksums as well, for readers other than this one.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from upriver.experiments.runspec import RunSpec

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 2
READABLE = (1, FORMAT)
"""Formats that are read; files of format 1, which version 0.1 wrote, have neither hash."""
BLANK = b"0" * 64
SEAL = re.compile(rb'"seal": "([0-9a-f]{64})"')
PLACE = 80
"""Bytes of the name of a folder, at most, but for its `env=` or `agent=`."""


class Damaged(ValueError):
    """A file that is not what was written."""


class Foreign(ValueError):
    """A file that this package did not write, or not in a format it knows."""


class Moved(ValueError):
    """A file of a run that belongs somewhere else."""

    def __init__(self, path: Path, place: Path) -> None:
        super().__init__(f"{path} holds the run that belongs at {place}; it was moved or copied")
        self.place = place


class Stored(NamedTuple):
    """What a run file holds."""

    run: RunSpec
    about: dict[str, Any]
    table: pa.Table


def folder_name(label: str) -> str:
    """The name of a label's folder: the label, if every file system takes it, else a safe one."""
    plain = re.fullmatch(r"\w([\w .+()@,-]*[\w+()@,-])?", label, re.ASCII)
    if plain and len(label) <= PLACE:
        return label
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", label)[: PLACE - 13]
    return f"{safe}~{hashlib.sha256(label.encode(errors='surrogatepass')).hexdigest()[:12]}"


def place_of(env: str, label: str, key: str) -> Path:
    """Where a run lies, from the root of its folder."""
    return Path(f"env={folder_name(env)}", f"agent={folder_name(label)}", f"{key}.parquet")


def to_bytes(run: RunSpec, table: pa.Table) -> bytes:
    """A run's Parquet file, its spec and where it ran in the metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from upriver import __version__

    about = {
        "format": FORMAT,
        "upriver": __version__,
        "run": run.to_data(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "seconds": float(np.sum(np.from_dlpack(table["seconds"].combine_chunks()))),
        "digest": digest_of(table),
        "seal": BLANK.decode(),
    }
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


def digest_of(table: pa.Table) -> str:
    """Hash of the names, types and values of all columns but `seconds`."""
    import pyarrow as pa

    digest = hashlib.sha256()
    for name in table.column_names:
        if name != "seconds":
            column = table[name].combine_chunks()
            of_numbers = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
            if of_numbers and not column.null_count:
                numbers = np.from_dlpack(column)  # `to_numpy` would import pandas in every worker
                kind, values = numbers.dtype, numbers.tobytes()
            else:
                kind, values = "object", "\n".join(map(str, column.to_pylist())).encode()
            digest.update(f"{name} {kind} {len(column)}\n".encode() + values)
    return digest.hexdigest()


def broken(path: Path, data: bytes | None = None) -> str | None:
    """What is wrong with the bytes of a file, whatever they say; None if nothing is."""
    try:
        data = path.read_bytes() if data is None else data
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    whole = len(data) >= 12 and data[:4] == data[-4:] == b"PAR1"
    if not whole or int.from_bytes(data[-8:-4], "little") > len(data) - 12:
        return f"{path} is not a complete Parquet file"
    seals = list(SEAL.finditer(data))
    if not seals:  # of format 1, or `about` will say that it is none of ours
        return None
    first, last = seals[0].span(1)
    if hashlib.sha256(data[:first] + BLANK + data[last:]).hexdigest().encode() != seals[0][1]:
        return f"{path} is damaged: its bytes are not those that were written"
    return None


def read_run(path: Path, columns: list[str] | None = None) -> Stored:
    """A run file, every bit of it checked; else Damaged, Foreign or Moved, with its name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        data = path.read_bytes()
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}") from error
    if sentence := broken(path, data):
        raise Damaged(sentence)
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        said = about(file.schema_arrow, path)
        table = file.read(columns=columns)
    except (pa.ArrowException, OSError, KeyError, IndexError) as error:
        raise Damaged(f"{path} is damaged: {error}") from error
    if said["format"] > 1 and SEAL.search(data) is None:
        raise Damaged(f"{path} is damaged: it has lost its seal")
    missing = {"seed", "episode", *(columns or ())} - set(file.schema_arrow.names)
    if missing or len(table) == 0:
        lacks = f"no column {min(missing)!r}" if missing else "no episodes"
        raise Damaged(f"{path} is damaged: it has {lacks}")
    try:
        run = RunSpec(**said["run"])
        own = place_of(run.env, run.label, run.key)
    except (TypeError, KeyError, AttributeError) as error:
        raise Foreign(f"{path} does not hold a run that this version knows") from error
    old = Path(f"env={run.env}", f"agent={run.label}", own.name)
    if Path(*path.parts[-3:]) not in (own, old):
        raise Moved(path, own)
    return Stored(run, said, table)


def about(schema: pa.Schema, path: Path) -> dict[str, Any]:
    """What a run file says about itself, or a ValueError that names it."""
    text = (schema.metadata or {}).get(b"upriver")
    if text is None:
        raise Foreign(f"{path} was not written by upriver")
    try:
        found = json.loads(text)
        number = found.get("format")
    except (ValueError, AttributeError, RecursionError):
        raise Damaged(f"{path} is damaged: what it says about itself is no table") from None
    if number not in READABLE:
        raise Foreign(f"{path} has format {number!r}, not {' or '.join(map(str, READABLE))}")
    return found
