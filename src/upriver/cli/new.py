"""`upriver new`: write a commented experiment file to start from."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path


def new(name: str) -> int:
    """Write NAME.toml, a commented experiment to start from. An existing file is not changed.

    **Example:** `upriver new rivers`, then `upriver run rivers.toml`

    Parameters
    ----------
    name
        The name of the experiment, which may begin with a folder.
    """
    file = Path(f"{name.removesuffix('.toml')}.toml")
    text = make_template(file.name.removesuffix(".toml"))
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise ValueError(f"{file} exists and was not changed; give another name") from None
    except OSError as error:
        raise ValueError(f"cannot write {file}: {error.strerror}") from error
    print(f"{file} written; run it with: upriver run {file}")
    return 0


def make_template(name: str) -> str:
    """Return the text of a commented experiment of that name."""
    from upriver.experiments.spec import loads

    text = (resources.files("upriver.cli") / "start.toml").read_text(encoding="utf-8")
    text = text.replace('"NAME"', json.dumps(name))  # TOML has the strings of JSON
    loads(text, name)  # refuses a name that labels cannot have
    return text
