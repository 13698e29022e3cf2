"""`upriver schema`: what an experiment file may hold, for editors."""

from __future__ import annotations

import json
from pathlib import Path


def schema(*, out: Path | None = None) -> int:
    """Write the JSON schema of experiment files: an editor completes and checks names with it.

    **Example:** `upriver schema --out upriver.schema.json`

    Parameters
    ----------
    out
        The file; printed if absent. A spec names it in its first line: #:schema FILE
    """
    from upriver.experiments.schema import schema as made

    text = json.dumps(made(), indent=1) + "\n"
    if out is None:
        print(text, end="")
    else:
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ValueError(f"cannot write {out}: {error.strerror}") from error
    return 0
