"""The README's first screen works when pasted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests import pages

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_example_prints_what_is_shown(tmp_path):
    block, shown = re.search(r"```python\n(.*?)```\s+```text\n(.*?)```", README, re.DOTALL).groups()
    assert len(block.splitlines()) <= 12
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert pages.agrees(shown, done.stdout), f"the README shows\n{shown}\nbut\n{done.stdout}"


def test_the_two_commands_are_those_of_the_makefile():
    makefile = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
    for command in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command
