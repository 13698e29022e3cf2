"""The command line: each command is a function whose parameters are the options.

Exit codes: 0 success, 1 the work failed, 2 a wrong call or input. Errors are one sentence on
stderr; `--debug` shows the traceback.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts import App

FILES = {
    "reproduce": ("reproduce",), "run": ("run", "tune"), "decide": ("decide",),
    "results": ("table", "plot", "report", "check"), "diagnose": ("diagnose",),
    "writing": ("list_names", "new", "schema"),
}  # fmt: skip
COMMANDS = {
    name.removesuffix("_names"): f"upriver.cli.{file}:{name}"
    for file, names in FILES.items()
    for name in names
}
"""Name of each command and where its function is; it is imported when it is called."""

CALL: list[str] = []
"""The words of the command that is running."""
MAX_ERROR = 2000  # characters of an error that are printed

HELP = """Learn and plan in finite decision problems with multinomial-logit transition models.

**Example:** `upriver run quick`, then `upriver report results/quick`"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        return run_command(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:  # also while modules are being imported
        return 130


def run_command(words: list[str]) -> int:
    from cyclopts import CycloptsError
    from rich.console import Console

    from upriver.results.tables import escape_controls

    open_streams()
    debug = "--debug" in words
    words = [w for w in words if w != "--debug"]
    CALL[:] = ["upriver", *words]
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    # the help of all commands needs their docstrings; otherwise only one command is imported
    everything = not words or words[0] in ("--help", "-h", "--install-completion")
    app = make_app(errors, everything)
    try:
        code = app(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (CycloptsError, ValueError, TypeError, OSError, MemoryError) as error:
        wrong_call = not isinstance(error, OSError | MemoryError)
        wrong_call |= isinstance(error, FileNotFoundError | NotADirectoryError)
        text = str(error)
        if isinstance(error, OSError) and error.filename is not None:
            text = f"{error.filename}: {error.strerror}"
        elif not isinstance(error, CycloptsError):
            text = name_option(text, words[0])
        if debug:
            errors.print_exception()
        text = text.strip() or type(error).__name__
        text = text if len(text) <= MAX_ERROR else f"{text[:MAX_ERROR]} ..."
        errors.print(f"upriver: {escape_controls(text)}", markup=False)
        return getattr(error, "exit_code", 2 if wrong_call else 1)


def make_app(errors: Any, everything: bool = True) -> App:
    """Return the parser of all commands; with `everything` they are imported now."""
    from cyclopts import App, Parameter

    from upriver import __version__

    about: Any = {"name": "upriver", "help": HELP, "version": __version__}
    # a switch is off unless given, so that it needs no --no- form
    about |= {"help_format": "markdown", "default_parameter": Parameter(negative=())}
    app = App(**about, error_console=errors)
    for name, where in COMMANDS.items():
        module, _, function = where.partition(":")
        app.command(getattr(import_module(module), function) if everything else where, name=name)
    app.register_install_completion_command(help="Make the shell complete commands and options.")
    return app


def name_option(text: str, command: str) -> str:
    """Return an error about an argument with its option: --run-timeout in place of run_timeout."""
    first, _, rest = text.partition(" ")
    module, _, function = COMMANDS.get(command, "builtins:print").partition(":")
    parameters = signature(getattr(import_module(module), function)).parameters
    names = {name for name, p in parameters.items() if p.kind is Parameter.KEYWORD_ONLY}
    names |= set(getattr(getattr(parameters.get("options"), "default", None), "__dict__", ()))
    name = first.removeprefix("n_")
    return f"--{name.replace('_', '-')} {rest}" if name in names else text


def open_streams() -> None:
    """Make outputs accept every character, and what is written to a closed one vanish."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(getattr(sys, name), "reconfigure"):
            getattr(sys, name).reconfigure(errors="backslashreplace")
