"""The numerical gate: every case gives the values that `expected.json` holds.

The gate says that a rewritten loop computes the same, up to rounding. Independent references and
theory decide what is right, in the other tests. Numbers are compared with the relative tolerance
of `tolerance_of`; whole numbers, such as policies and what was observed, must be equal.

To make the values again: `python -m tests.gate.test_gate`. Values that agree within their tolerance
stay as they are, so the difference of the file shows what changed; the commit message says why the
new values are right. The command raises an error for a case that rounding decides.
"""

from __future__ import annotations

import json
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gate.cases import CASES, TOLERANCES, perturbed

EXPECTED = Path(__file__).parent / "expected.json"
TOLERANCE = 1e-9
ROUNDING = 1e-13


def read_expected() -> dict[str, dict[str, Any]]:
    return json.loads(EXPECTED.read_text(encoding="utf-8")) if EXPECTED.exists() else {}


def tolerance_of(case: str, output: str) -> tuple[float, str]:
    """Return (relative tolerance, reason) of an output."""
    for pattern, tolerance, reason in TOLERANCES:
        if fnmatchcase(f"{case}/{output}", pattern):
            return tolerance, reason
    return TOLERANCE, "the order of sums may change the last bits"


def find_differences(case: str, expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Return what differs, in words.

    A number may differ by the tolerance times its size, or times a thousandth of the largest number
    of its output where that is more: small differences of large numbers have larger errors.
    """
    wrong = []
    if set(found) != set(expected):
        wrong.append(f"the outputs are {sorted(found)}; expected were {sorted(expected)}")
    for output in sorted(set(found) & set(expected)):
        old, new = np.asarray(expected[output]), np.asarray(found[output])
        tolerance, reason = tolerance_of(case, output)
        if old.shape != new.shape:
            wrong.append(f"output {output!r} has shape {new.shape}; expected was {old.shape}")
        elif new.dtype.kind in "biu":
            if (at := np.argwhere(old != new)).size:
                wrong.append(f"output {output!r} differs at {at.tolist()[:5]}")
        else:
            scale = np.abs(old[np.isfinite(old)]).max(initial=0.0)
            close = np.isclose(new, old, tolerance, 1e-3 * tolerance * scale, equal_nan=True)
            if not close.all():
                at = tuple(np.argwhere(~close)[0].tolist())
                wrong.append(
                    f"output {output!r} differs in {(~close).sum()} of {close.size} numbers, "
                    f"beyond {tolerance:g} ({reason}): at {at} it is {new[at]!r}; "
                    f"expected was {old[at]!r}"
                )
    return wrong


def test_every_case_has_values() -> None:
    assert list(CASES) == list(read_expected()), "run `python -m tests.gate.test_gate`"


@pytest.mark.parametrize("case", CASES)
def test_values_are_unchanged(case: str) -> None:
    wrong = find_differences(case, read_expected()[case], CASES[case]())
    assert not wrong, "\n".join(wrong)


def rounded(value: Any) -> Any:
    """Return what JSON can hold: whole numbers, or floating-point numbers with 13 digits."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"an output has the type {array.dtype}; it must hold numbers")
    flat = array.astype(float if array.dtype.kind == "f" else int).ravel().tolist()
    short = np.empty(len(flat), object)
    short[:] = [float(f"{x:.13g}") if isinstance(x, float) else x for x in flat]
    return short.reshape(array.shape).tolist()


def main() -> None:
    """Write `expected.json`; raise an error where rounding decides a case."""
    before, lines, unstable = read_expected(), [], []
    computed = {name: case() for name, case in CASES.items()}
    for seed in range(3):
        with perturbed(ROUNDING, seed):
            for name, case in CASES.items():
                if wrong := find_differences(name, computed[name], case()):
                    unstable.append(f"{name}: " + "; ".join(wrong))
    if unstable:
        raise SystemExit("rounding decides these cases:\n" + "\n".join(unstable))
    for name, outputs in computed.items():
        made = {}
        for key, value in sorted(outputs.items()):
            old = before.get(name, {}).get(key)
            same = old is not None and not find_differences(name, {key: old}, {key: value})
            made[key] = old if same else rounded(value)
        body = ",\n".join(
            f"  {json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in made.items()
        )
        lines.append(f"{json.dumps(name)}: {{\n{body}\n}}")
    EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    sys.stdout.write(f"{len(lines)} cases, {EXPECTED.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
