"""The README's first screen works when pasted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_example_runs_as_it_stands(tmp_path):
    block = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
    assert len(block.splitlines()) <= 12
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lost = float(re.search(r"learning cost ([\d.]+) of 100 episodes", done.stdout)[1])
    assert lost < 4
    assert "a=1 interior right" in done.stdout  # the fitted core, by name


def test_the_two_commands_are_those_of_the_makefile():
    makefile = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
    for command in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command
