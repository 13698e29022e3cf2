"""The command line: one file per command, each a function that parses nothing but its arguments.

Exit codes: 0 success, 1 the work failed, 2 a wrong call or input. Errors are one sentence on
stderr; `--debug` shows the traceback.
"""

from __future__ import annotations

import os
import sys

COMMANDS: dict[str, str] = {
    "reproduce": "upriver.cli.reproduce:reproduce",
    "run": "upriver.cli.run:run",
    "tune": "upriver.cli.tune:tune",
    "table": "upriver.cli.table:table",
    "plot": "upriver.cli.plot:plot",
    "report": "upriver.cli.report:report",
    "watch": "upriver.cli.watch:watch",
    "diagnose": "upriver.cli.diagnose:diagnose",
    "list": "upriver.cli.listing:list_names",
}
"""Name of each command and where its function lives; loaded when it is called."""


class CommandFailed(Exception):
    """The work was understood and failed: one sentence on stderr, exit code 1."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    from cyclopts import App, CycloptsError
    from rich.console import Console

    from upriver import __version__

    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [w for w in words if w != "--debug"]
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    app = App(
        name="upriver",
        help="Reinforcement learning with multinomial-logistic transition models.",
        version=__version__,
        error_console=errors,
        help_format="markdown",
    )
    for name, where in COMMANDS.items():
        app.command(where, name=name)
    try:
        code = app(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except CycloptsError as error:
        return complain(errors, error, debug, 2)
    except CommandFailed as error:
        return complain(errors, error, debug, 1)
    except (ValueError, TypeError, FileNotFoundError, NotADirectoryError) as error:
        return complain(errors, error, debug, 2)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return complain(errors, error, debug, 1)
    except KeyboardInterrupt:
        return 130


def complain(console, error: BaseException, debug: bool, code: int) -> int:
    if debug:
        console.print_exception()
    console.print(f"upriver: {str(error).strip()}", markup=False)
    return code
