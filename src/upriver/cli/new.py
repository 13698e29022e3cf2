"""`upriver new`: a commented experiment file to start from."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def new(name: str) -> int:
    """Write NAME.toml, a commented experiment to start from; an existing file is left alone.

    **Example:** `upriver new rivers`, then `upriver run rivers.toml`

    Parameters
    ----------
    name
        The experiment's name; it may have a folder before it.
    """
    file = Path(f"{name.removesuffix('.toml')}.toml")
    text = start(file.name.removesuffix(".toml"))
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise ValueError(f"{file} exists and was left alone; give another name") from None
    except OSError as error:
        raise ValueError(f"cannot write {file}: {error.strerror}") from error
    print(f"{file} written; run it with: upriver run {file}")
    return 0


def start(name: str) -> str:
    """The text of a commented experiment of that name."""
    from upriver.experiments import toml
    from upriver.experiments.reading import loads

    text = (resources.files("upriver.cli") / "start.toml").read_text(encoding="utf-8")
    text = text.replace('"NAME"', toml.scalar(name))
    loads(text, name)  # a name that labels cannot have is refused here
    return text
