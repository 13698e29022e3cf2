"""The documentation: examples print what is shown, links lead somewhere, nothing is missing."""

import ast
import doctest
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import upriver
from tests import pages
from upriver.agents.table import AGENTS
from upriver.envs import ENVIRONMENTS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)
NOTEBOOK = "---\nfile_format: mystnb\n"
WITH_EXAMPLES = [
    p
    for p in PAGES
    if "tables" not in p.parts
    and not p.read_text().startswith(NOTEBOOK)
    and re.search(r"^```(pycon|python|console)$", p.read_text(), re.M)
]
RETURNED = {
    "Plan": "plan.",
    "Run": "run.",
    "Rollouts": "played.",
    "LearningRun": "learning.",
    "FittedMNL": "fitted.",
    "TransitionModel": "ward.",
    "RewardModel": "wanted.",
}
"""The variable that holds an instance in the examples, for classes that users do not construct."""
LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
ROLE = re.compile(r"\{doc\}`(?:[^`<]*<)?([^`>]+)>?`")


def name_of(path):
    return str(path.relative_to(ROOT))


def without_code(text):
    """Return the text of a page without code spans and code blocks, which contain no links."""
    return re.sub(r"(?<!`)`[^`\n{}]+`(?!`)", "", pages.FENCE.sub("", text))


def anchors_of(path):
    """Return the anchors of a page: its headings as they appear in an address."""
    headings = re.findall(r"^#+ (.+)$", pages.FENCE.sub("", path.read_text()), re.M)
    kept = (re.sub(r"[^\w\- ]", "", h.lower()) for h in headings)
    return {h.strip().replace(" ", "-") for h in kept}


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=name_of)
def test_examples_print_what_is_shown(path, tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    pages.run(path, tmp_path)


def imported_packages(path):
    """Return the packages that the code of a page imports, and its own files left out."""
    found = set()
    own = set(re.findall(r"%%writefile (\w+)\.py|:caption: (\w+)\.py", path.read_text()))
    for block in pages.blocks(path.read_text()):
        if block.kind not in ("python", "{code-cell}", "pycon"):
            continue
        source = block.body
        if source.startswith("%%writefile") and not source.partition("\n")[0].endswith(".py"):
            continue
        if block.kind == "pycon":
            source = "".join(e.source for e in doctest.DocTestParser().get_examples(source))
        for node in ast.walk(ast.parse(re.sub(r"^%%.*\n", "", source))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {name for pair in own for name in pair}


@pytest.mark.parametrize(
    "path",
    [ROOT / "README.md", *(p for p in PAGES if p.parent.name in ("start", "tutorials", "howto"))],
    ids=name_of,
)
def test_pages_run_on_the_plain_installation(path):
    """Imports are dependencies of the package; a page may announce `pip install NAME` itself.

    `make release` runs the pages in an environment with the wheel alone.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    allowed = {re.split(r"[<>=]", name)[0] for name in project["dependencies"]} | {"upriver"}
    allowed |= set(re.findall(r"`pip install ([\w-]+)`", path.read_text()))
    assert imported_packages(path) <= allowed


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
    entries = {}
    for path in (DOCS / "reference" / "api").glob("*.md"):
        found = re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", path.read_text(), re.M | re.S)
        entries.update(found)
    assert set(entries) == set(upriver.__all__)
    for name, entry in entries.items():
        assert f":: upriver.{name}" in entry, f"{name} has no signature"
        shown = "\n".join(b.body for b in pages.blocks(entry) if b.kind == "pycon")
        assert f"up.{name}" in shown or RETURNED.get(name, "?") in shown, name


def test_every_agent_has_formulas_and_an_api_entry():
    """An agent is in the table of all agents, on the page of its family, and in the API."""
    index = (DOCS / "howto" / "choose-an-agent.md").read_text()
    families = "".join(p.read_text() for p in (DOCS / "reference" / "agents").glob("*.md"))
    api = (DOCS / "reference" / "api" / "agents.md").read_text()
    for name, agent in AGENTS.items():
        assert f"`{name}`" in index, f"{name} is not in howto/choose-an-agent.md"
        assert f"`{name}`" in families, f"{name} is on no page of a family"
        assert f":: upriver.agents.{agent.__name__}\n" in api, f"{name} has no entry in the API"


def test_every_environment_has_a_section():
    text = (DOCS / "reference" / "environments.md").read_text()
    for name in ENVIRONMENTS:
        assert re.search(rf"`{name}(-\d+)?`", text), f"{name} is not described"


@pytest.mark.parametrize("folder", ["tutorials", "howto"])
def test_tutorials_and_how_to_pages_link_the_glossary(folder):
    for path in (DOCS / folder).glob("*.md"):
        assert "{term}`" in path.read_text(), f"{name_of(path)} links no term of the glossary"


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


@pytest.mark.parametrize("execution", ["off", pytest.param("cache", marks=pytest.mark.slow)])
def test_the_site_builds_without_a_warning(tmp_path, execution):
    """Executing the notebooks takes a minute; `test_notebooks` runs their cells by itself."""
    options = [f"nb_execution_mode={execution}", "suppress_warnings=myst-nb.lexer"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html",
         *(word for option in options[: 1 + (execution == "off")] for word in ("-D", option)),
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
    index = (tmp_path / "html" / "searchindex.js").read_text()
    titles = json.loads(index[index.index("{") : index.rindex("}") + 1])["titles"]
    assert all(title and title != "<no title>" for title in titles)
