"""Atomic writing of files: a file is written completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copymode
from typing import Any
from uuid import uuid4


@contextmanager
def replacing(path: Any) -> Iterator[Path]:
    """Give a temporary name beside `path`; what is written there replaces `path` at the end, unless
    there is an error."""
    target = Path(os.path.realpath(path))  # a link stays a link
    if target.is_dir():
        raise ValueError(f"{os.fspath(path)!r} is a folder; it must be the name of a file")
    if target.exists() and not target.is_file():  # a pipe or a terminal is written to directly
        yield target
        return
    part = target.with_name(f".{uuid4().hex}.part{target.suffix}")
    try:
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        if target.exists():
            copymode(target, part)
        os.replace(part, target)
    except OSError as error:
        if error.filename not in (None, str(part)):
            raise
        # such as a full disk: the name of the part says nothing
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def write_file(path: Any, data: str | bytes) -> Path:
    """Write a whole file or leave the old one as it was, and return its path."""
    with replacing(path) as part:
        part.write_bytes(data.encode() if isinstance(data, str) else data)
    return Path(path)
