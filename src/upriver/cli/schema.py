"""`upriver schema`: write the JSON schema of experiment files, for editors."""

from __future__ import annotations

import json
from pathlib import Path


def schema(*, out: Path | None = None) -> int:
    """Write the JSON schema of experiment files, with which an editor completes and checks names.

    **Example:** `upriver schema --out upriver.schema.json`

    Parameters
    ----------
    out
        The file to write; without it the schema is printed. An experiment file names it in its
        first line: #:schema FILE
    """
    from upriver.experiments.spec import schema as make_schema

    text = json.dumps(make_schema(), indent=1) + "\n"
    if out is None:
        print(text, end="")
        return 0
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot write {out}: {error.strerror}") from error
    return 0
