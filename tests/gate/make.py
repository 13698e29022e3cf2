"""Write `digests.json` again: `python -m tests.gate.make`.

The digests say that a change of the code changed no number. Write them again only with a reason,
and give the reason in the commit message: which numbers changed, and why the new ones are right.

A floating-point output is digested as five numbers, [sum, weighted sum, sum of absolute values,
first, last], of its finite entries in order; a single number as itself. They are compared with a
relative tolerance, because a loop that is written in another order may change the last bit. An
integer output, such as a policy, is digested as a hash: it must be the same.
"""

from __future__ import annotations

import os

os.environ["NUMBA_NUM_THREADS"] = "1"

import hashlib
import json
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from tests.gate.cases import CASES, TOLERANCES

DIGESTS = Path(__file__).parent / "digests.json"
TOLERANCE = 1e-8


def digest(value: Any) -> Any:
    """Return the digest of one output, a value that JSON can hold."""
    array = np.asarray(value)
    if array.dtype.kind in "biu":
        whole = np.ascontiguousarray(array, dtype=np.int64)
        return f"{list(array.shape)} {hashlib.sha256(whole.tobytes()).hexdigest()[:16]}"
    if array.dtype.kind != "f":
        raise TypeError(f"an output has the type {array.dtype}; it must hold numbers")
    if array.ndim == 0:
        return float(array)
    flat = np.where(np.isfinite(array), array, 0.0).astype(float).ravel()
    weights = 1.0 + 0.5 * np.sin(np.arange(1.0, len(flat) + 1.0))
    infinite = int((~np.isfinite(array)).sum())
    numbers = [flat.sum(), weights @ flat, np.abs(flat).sum(), flat[0], flat[-1]]
    return [[*array.shape, infinite], *map(float, numbers)]


def tolerance_of(case: str, output: str) -> tuple[float, str]:
    """Return (relative tolerance, reason) of an output."""
    for pattern, tolerance, reason in TOLERANCES:
        if fnmatchcase(f"{case}/{output}", pattern):
            return tolerance, reason
    return TOLERANCE, "the order of sums may change the last bits"


def find_difference(expected: Any, found: Any, tolerance: float) -> str:
    """Return what differs between two digests in words; the empty string where nothing does."""
    if isinstance(expected, str) or isinstance(found, str) or type(expected) is not type(found):
        return "" if expected == found else "the integers"
    if isinstance(expected, float):
        close = np.isclose(found, expected, rtol=tolerance, atol=1e-14, equal_nan=True)
        return "" if close else "the number"
    if expected[0] != found[0]:
        return "the shape, or the number of infinite entries"
    size = max(int(np.prod(expected[0][:-1])), 1)
    total = tolerance * expected[3] + 1e-14 * size
    entry = [max(abs(x), expected[3] / size) * tolerance + 1e-14 for x in expected[4:]]
    allowed = {
        "the sum": total,
        "the weighted sum": 1.5 * total,
        "the sum of absolute values": total,
        "the first entry": entry[0],
        "the last entry": entry[1],
    }
    pairs = zip(allowed.items(), expected[1:], found[1:], strict=True)
    return ", ".join(name for (name, most), old, new in pairs if not abs(old - new) <= most)


def main() -> None:
    lines, before = [], json.loads(DIGESTS.read_text(encoding="utf-8"))
    for name, case in CASES.items():
        outputs = {key: digest(value) for key, value in sorted(case().items())}
        for key, old in before.get(name, {}).items():
            # what agrees within its tolerance stays, so that the diff shows what changed
            same = key in outputs and not find_difference(
                old, outputs[key], tolerance_of(name, key)[0]
            )
            outputs |= {key: old} if same else {}
        body = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in outputs.items())
        lines.append(f"{json.dumps(name)}: {{\n{body}\n}}")
    DIGESTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    sys.stdout.write(f"{len(lines)} cases in {DIGESTS.name}\n")


if __name__ == "__main__":
    main()
