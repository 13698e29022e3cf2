"""The examples of the documentation, run: what a reader pastes must give what the page shows.

In a page, in order and with one memory for the whole page:

    ```python               is executed; a ```text block right after it is what it prints
    ```pycon                is Python at its prompt, with what it prints
    ```console              lines with `$ upriver ...` are commands, the others what they print
    ```{code-block} toml    with a :caption: is written to a file of that name
    ```{code-cell}          is executed, and shown by whoever builds the pages; %%writefile writes

A line `...` stands for any lines. Words must be equal; numbers may differ by one in their last
digit, because two machines do not round alike. `python -m tests.pages PAGE` puts what is printed
now into a page.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^(?P<ticks>`{3,})(?P<kind>[^\n`]*)\n(?P<body>.*?)^(?P=ticks)$", re.M | re.S)
CAPTION = re.compile(r"\A(?::\w+:.*\n)*?:caption: (.+)\n(?::\w+:.*\n)*\n?")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


class Block(NamedTuple):
    kind: str
    body: str
    line: int
    start: int
    """Where the body begins in the page."""


def blocks(text: str) -> list[Block]:
    return [
        Block(m["kind"].strip(), m["body"], text.count("\n", 0, m.start()) + 1, m.start("body"))
        for m in FENCE.finditer(text)
    ]


def agrees(shown: str, printed: str) -> bool:
    """Whether the lines shown are the lines printed."""
    pattern = [line.rstrip() for line in shown.strip("\n").splitlines()]
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]

    def match(i: int, j: int) -> bool:
        if i == len(pattern):
            return j == len(lines)
        if pattern[i].strip() == "...":
            return any(match(i + 1, k) for k in range(j, len(lines) + 1))
        return j < len(lines) and same_line(pattern[i], lines[j]) and match(i + 1, j + 1)

    return match(0, 0)


def same_line(a: str, b: str) -> bool:
    if NUMBER.sub("#", a).split() != NUMBER.sub("#", b).split():
        return False
    return all(
        abs(float(x) - float(y)) <= 1.0001 * last_digit(x)
        for x, y in zip(NUMBER.findall(a), NUMBER.findall(b), strict=True)
    )


def last_digit(number: str) -> float:
    """The worth of one in the last digit; nothing for a whole number, which is exact."""
    mantissa, _, exponent = number.partition("e")
    digits = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - digits) if digits or exponent else 0.0


def command(line: str) -> str:
    """What `upriver ...` prints, run in this process."""
    from upriver.cli import main

    words = shlex.split(line)[1:]
    if words[0] in ("run", "tune") and "--jobs" not in words:
        words += ["--jobs", "1"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(words)
    if code:
        raise AssertionError(f"{line} ends with {code}: {errors.getvalue()}")
    return printed.getvalue()


def run(
    path: Path, folder: Path, fill: bool = False, memory: dict[str, object] | None = None
) -> str:
    """Run the examples of a page in `folder`; the page with what they print now.

    Unless `fill`, output that differs from what is shown is an AssertionError. What the examples
    leave behind is put into `memory`.
    """
    text = path.read_text()
    memory = {} if memory is None else memory
    memory["__name__"] = "page"
    changes: list[tuple[Block, str]] = []
    found = blocks(text)

    def check(block: Block, shown: str, printed: str, replacement: str) -> None:
        if agrees(shown, printed):
            return
        if not fill:
            raise AssertionError(
                f"{path}, line {block.line}, shows\n{shown}\nbut this is printed:\n{printed}"
            )
        changes.append((block, replacement))

    with contextlib.chdir(folder), importable(folder):
        for block, after in zip(found, [*found[1:], None], strict=False):
            if block.kind == "{code-cell}":
                cell(block, path, memory)
            elif caption := CAPTION.match(block.body):
                Path(caption[1]).write_text(block.body[caption.end() :])
            elif block.kind == "python":
                printed = io.StringIO()
                code = compile("\n" * block.line + block.body, str(path), "exec")
                with contextlib.redirect_stdout(printed):
                    exec(code, memory)
                if (
                    after
                    and after.kind == "text"
                    and text[: after.start].count("\n") - 1
                    <= (block.line + block.body.count("\n") + 4)
                ):
                    check(after, after.body, printed.getvalue(), printed.getvalue())
            elif block.kind == "pycon":
                prompts(block, memory, check)
            elif block.kind == "console":
                commands(block, check)
    for block, new in reversed(changes):
        end = block.start + len(block.body)
        text = text[: block.start] + new.rstrip("\n") + "\n" + text[end:]
    return text


def cell(block: Block, path: Path, memory: dict[str, object]) -> None:
    """A cell of a notebook, as far as plain Python has it."""
    if block.body.startswith("%%writefile "):
        name, _, text = block.body.removeprefix("%%writefile ").partition("\n")
        Path(name).write_text(text)
        return
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile("\n" * block.line + block.body, str(path), "exec"), memory)


@contextlib.contextmanager
def importable(folder: Path):
    """A reader's own modules are found in the folder where the reader works."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def prompts(block: Block, memory: dict[str, object], check) -> None:
    """Python at its prompt: each example with what it prints, or the error it ends with."""
    lines, at, new = block.body.splitlines(keepends=True), 0, ""
    for example in doctest.DocTestParser().get_examples(block.body):
        source = example.lineno + example.source.count("\n")
        new += "".join(lines[at:source])
        at = source + example.want.count("\n")
        printed = answer(example.source, memory)
        new += example.want if agrees(example.want, printed) else printed
    new += "".join(lines[at:])
    check(block, block.body, new, new)


def answer(source: str, memory: dict[str, object]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(source, "<page>", "single"), memory)
        except Exception as error:
            print(f"Traceback (most recent call last):\n...\n{type(error).__name__}: {error}")
    return printed.getvalue()


def commands(block: Block, check) -> None:
    parts = re.split(r"^\$ (.*)\n", block.body, flags=re.M)[1:]
    new = ""
    for line, shown in zip(parts[::2], parts[1::2], strict=True):
        new += f"$ {line}\n"
        if not line.startswith("upriver "):
            new += shown
            continue
        printed = command(line)
        new += shown if agrees(shown or "...", printed) else printed
    check(block, block.body, new, new)


def main(names: list[str]) -> None:
    for name in names:
        path = Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder:
            path.write_text(run(path, Path(folder), fill=True))


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "agg")
    main(sys.argv[1:])
