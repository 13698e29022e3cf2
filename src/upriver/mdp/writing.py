"""Files that are there whole or not at all; everything that this package writes goes this way."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shutil import copymode
from typing import Any
from uuid import uuid4


@contextmanager
def replacing(path: Any) -> Iterator[Path]:
    """A name beside `path` to write to; at the end, if all went well, it takes the place of `path`.

    An error leaves what was there as it was, and nothing beside it.
    """
    target = Path(os.path.realpath(path))  # a link stays a link
    if target.exists() and not target.is_file():  # a pipe or a terminal has nothing to lose
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
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def write_file(path: Any, data: str | bytes) -> Path:
    """Write a whole file, or leave what was there."""
    write_files({Path(path): data})
    return Path(path)


def write_files(contents: Mapping[Path, str | bytes]) -> None:
    """Write files that belong together: none takes its name before all of them are written."""
    with ExitStack() as parts:
        for path, data in contents.items():
            part = parts.enter_context(replacing(path))
            part.write_bytes(data.encode() if isinstance(data, str) else data)
