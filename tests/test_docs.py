"""The documentation: examples print what is shown, links lead somewhere, nothing is missing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import upriver
from tests import pages
from upriver.agents.table import AGENTS
from upriver.envs import ENVIRONMENTS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)
WITH_EXAMPLES = [
    DOCS / "index.md",
    DOCS / "api.md",
    DOCS / "horizons.md",
    *sorted((DOCS / "howto").glob("*.md")),
]
MADE_BY_OTHERS = {
    "Plan": "plan.",
    "Run": "run.",
    "Rollouts": "played.",
    "LearningRun": "learning.",
    "FittedMNL": "fitted.",
    "TransitionModel": "ward.",
}
"""How the examples call what nobody makes by its name."""
LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
ROLE = re.compile(r"\{doc\}`(?:[^`<]*<)?([^`>]+)>?`")


def name_of(path):
    return str(path.relative_to(ROOT))


def without_code(text):
    """A page as links are read in it; a `code span` or a block is no place for a link."""
    return re.sub(r"(?<!`)`[^`\n{}]+`(?!`)", "", pages.FENCE.sub("", text))


def anchors_of(path):
    """What `#...` may follow the page: its headings as addresses."""
    headings = re.findall(r"^#+ (.+)$", pages.FENCE.sub("", path.read_text()), re.M)
    kept = (re.sub(r"[^\w\- ]", "", h.lower()) for h in headings)
    return {h.strip().replace(" ", "-") for h in kept}


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=name_of)
def test_examples_print_what_is_shown(path, tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    pages.run(path, tmp_path)


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=name_of)
def test_output_that_is_announced_is_there(path):
    for block in pages.blocks(path.read_text()):
        included = block.kind.startswith("{include}")
        assert included or block.body.strip(), f"{path}, line {block.line}, is empty"


def test_a_page_that_shows_something_else_is_caught(tmp_path):
    page = tmp_path / "page.md"
    for shown, printed in [("3", "4"), ("1.50", "1.53"), ("a b", "a c"), ("a\n...", "b\nc")]:
        page.write_text(f"```python\nprint({printed!r})\n```\n\n```text\n{shown}\n```\n")
        with pytest.raises(AssertionError, match="shows"):
            pages.run(page, tmp_path)
        page.write_text(f"```pycon\n>>> print({printed!r})\n{shown}\n```\n")
        with pytest.raises(AssertionError, match="shows"):
            pages.run(page, tmp_path)
    for shown, printed in [("1.50", "1.51"), ("a\n...\nd", "a\nb\nc\nd"), ("x  1", "x 1")]:
        assert pages.agrees(shown, printed)


def test_a_page_can_be_brought_up_to_date(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```pycon\n>>> 1 + 1\n3\n>>> x = 2\n>>> x\n```\n\n```python\nprint(x)\n```\n\n"
        "```text\n```\n"
    )
    now = pages.run(page, tmp_path, fill=True)
    assert now == (
        "```pycon\n>>> 1 + 1\n2\n>>> x = 2\n>>> x\n2\n```\n\n```python\nprint(x)\n```\n\n"
        "```text\n2\n```\n"
    )


def test_every_public_name_has_an_entry_and_an_example():
    text = (DOCS / "api.md").read_text()
    entries = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", text, re.M | re.S))
    assert set(entries) == set(upriver.__all__)
    for name, entry in entries.items():
        assert f":: upriver.{name}\n" in entry, f"{name} has no signature"
        shown = "\n".join(b.body for b in pages.blocks(entry) if b.kind == "pycon")
        assert f"up.{name}" in shown or MADE_BY_OTHERS.get(name, "?") in shown, name


@pytest.mark.parametrize("kind, names", [("agents", AGENTS), ("envs", ENVIRONMENTS)])
def test_every_agent_and_environment_has_a_page(kind, names):
    """It is named in code, with or without a size, on a page that the index links."""
    index = (DOCS / kind / "index.md").read_text()
    text = "".join(
        p.read_text() for p in (DOCS / kind).glob("*.md") if p.stem == "index" or p.name in index
    )
    for name in names:
        assert re.search(rf"`{name}(-\d+)?`", index), f"{name} is not in {kind}/index.md"
        assert len(re.findall(rf"`{name}(?:-\d+)?`", text)) > 1, f"{name} has no page"


@pytest.mark.parametrize(
    "path", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=name_of
)
def test_links_lead_somewhere(path):
    text = without_code(path.read_text())
    for target in LINK.findall(text):
        if "://" in target or target.startswith("mailto:"):
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        if not found.suffix and not found.exists():
            found = found.with_suffix(".md")
        assert found.exists(), f"{name_of(path)} links {target}"
        if anchor:
            assert anchor in anchors_of(found), f"{name_of(path)} links {target}"
    for target in ROLE.findall(path.read_text()):
        assert (path.parent / f"{target}.md").exists(), f"{name_of(path)} links {target}"


def test_the_site_builds_without_a_warning(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html",
         "-d", tmp_path / "doctrees", DOCS, tmp_path / "html"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for page in (tmp_path / "html").rglob("*.html"):
        fetched = re.findall(
            r"""<(?:script|link|img)[^>]*(?:src|href)=["'](https?:[^"']+)""", page.read_text()
        )
        assert not fetched, f"{page.name} needs the network: {fetched[0]}"
    assert (tmp_path / "html" / "index.html").exists()
