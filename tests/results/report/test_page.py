"""The report in a real browser: every control, at desktop and phone width."""

import shutil

import pytest

from tests.browser import Browser, needs_browser
from upriver.cli import main
from upriver.experiments import execute
from upriver.experiments.spec import parse

pytestmark = needs_browser


@pytest.fixture(scope="module")
def report(sweep, tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "report.html"
    assert main(["report", str(sweep), "--out", str(file)]) == 0
    return file.as_uri()


@pytest.fixture(scope="module")
def browser():
    with Browser() as started:
        yield started


def lines(page, chart):
    """{agent: last y} of the lines that a chart draws now."""
    return page.run(
        f"Object.fromEntries(document.getElementById({chart!r}).data"
        ".filter((t) => t.name).map((t) => [t.name, t.y.at(-1)]))"
    )


def cells(page, table):
    return page.run(
        f"[...document.querySelectorAll('#{table} tbody tr')]"
        ".map((r) => [...r.children].map((c) => c.textContent))"
    )


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)], ids=["desktop", "phone"])
def test_everything_answers(browser, report, width, height):
    page = browser.open(report, width, height)
    page.wait("document.querySelector('#regret .main-svg')")
    assert page.text("#summary") == "24 runs of 4 agents on 2 environments"
    assert page.run("document.documentElement.scrollWidth") <= width

    # the table
    rows = {row[0]: row for row in cells(page, "totals")}
    assert set(rows) == {"optimal", "ucrl-mnl", "greedy", "random"}
    assert rows["random"][1:3] == ["3", "60"]
    assert rows["optimal"][5] == "100.0%" and rows["optimal"][-1] == "0% [0, 71]"

    # another environment, and back to fewer agents
    before = lines(page, "regret")
    page.choose("#env", "river-10")
    after = lines(page, "regret")
    assert set(before) == set(after) and 0 < after["random"] != before["random"] > 0
    assert "river-10" in page.text("#totals caption")
    assert cells(page, "totals")[0][2] == "400"
    page.click('[data-agent="random"]')
    page.wait("document.querySelector('[data-agent=random]').ariaPressed === 'false'")
    assert "random" not in lines(page, "regret") and "random" not in lines(page, "learning")

    # log scale, single runs, returns instead of values
    axis = "document.getElementById('regret').layout.yaxis.type"
    assert page.run(axis) != "log"
    page.click("#log + span")
    page.wait(f"{axis} === 'log'")
    count = page.run("document.getElementById('learning').data.length")
    page.click("#seeds + span")
    page.wait("document.getElementById('learning-text').textContent.includes('single runs')")
    assert page.run("document.getElementById('learning').data.length") <= count
    page.choose("#measure", "return")
    assert "mean of the last 20 episodes" in page.text("#learning-text")
    page.choose("#measure", "value")
    page.click("#seeds + span")
    page.click("#log + span")
    page.wait(f"{axis} !== 'log'")

    # a hover with the mouse reads the value that was drawn
    x, y, w, h = page.place("#regret")
    page.move(x + 0.6 * w, y + 0.5 * h)
    page.wait("document.querySelector('#regret .hoverlayer').textContent.includes('greedy')")
    shown = page.text("#regret .hoverlayer")
    assert "episode" in shown
    near = page.run(
        "(() => { const all = document.getElementById('regret').data;"
        "const t = all.find((t) => t.name === 'greedy');"
        "const k = Number(document.querySelector('#regret .hoverlayer').textContent"
        ".match(/episode ([0-9,]+)/)[1].replaceAll(',', ''));"
        "return t.y[t.x.indexOf(k)]; })()"
    )
    said = float(shown.split("greedy : ")[1].split()[0].replace(",", "").replace("−", "-"))
    assert said == pytest.approx(near, rel=1e-3)

    # dark and back, and nothing was complained about or asked for
    page.click("#theme")
    assert page.run("document.documentElement.dataset.theme") == "dark"
    assert page.errors == []
    assert page.network == []


def test_an_infinite_horizon_counts_steps(browser, tmp_path):
    spec = {
        "name": "steps",
        "episodes": 30,
        "seeds": {"count": 1},
        "environments": [
            {"name": "riverswim-3"},
            {"name": "riverswim-3", "discount": 1, "label": "stream"},
        ],
        "agents": [{"agent": "ucrl-mnl-se", "label": "mine"}],
    }
    assert execute(parse(spec), tmp_path / "out", jobs=1).complete
    assert main(["report", str(tmp_path / "out")]) == 0
    page = browser.open((tmp_path / "out" / "report.html").as_uri())
    page.wait("document.querySelector('#regret .main-svg')")
    page.choose("#env", "stream")
    assert page.text("#learning-title") == "What a step earns"
    assert page.run("document.getElementById('regret').layout.xaxis.title.text") == "step"
    assert page.errors == []


def test_a_partial_folder_has_a_report(browser, sweep, tmp_path):
    """While a sweep runs, agents and environments may be missing and seeds differ in number."""
    folder = tmp_path / "partial"
    shutil.copytree(sweep, folder)
    for path in sorted(folder.glob("env=river-10/agent=ucrl-mnl/*.parquet")):
        path.unlink()
    min(folder.glob("env=river-4/agent=random/*.parquet")).unlink()
    assert main(["report", str(folder)]) == 0 and main(["table", str(folder)]) == 0
    page = browser.open((folder / "report.html").as_uri())
    page.wait("document.querySelector('#regret .main-svg')")
    assert page.text("#summary") == "20 runs of 4 agents on 2 environments"
    assert "2 to 3 runs" in page.text("#regret-text")
    page.choose("#env", "river-10")
    assert [row[0] for row in cells(page, "totals")] == ["optimal", "greedy", "random"]
    assert page.errors == []


def test_names_for_a_screen_reader(browser, report):
    """Every figure, control and table has a name, as the browser itself tells assistive tools."""
    page = browser.open(report)
    page.wait("document.querySelector('#regret .main-svg')")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    seen = {}
    for node in nodes:
        role = node.get("role", {}).get("value")
        if node.get("ignored") or role not in ("image", "combobox", "checkbox", "button", "table"):
            continue
        seen.setdefault(role, []).append(node.get("name", {}).get("value", ""))
    assert len(seen["image"]) >= 2
    assert all(all(names) for role, names in seen.items() if role != "table"), seen
    assert any(name.startswith("Cumulative regret") for name in seen["image"])
    headings = page.run("[...document.querySelectorAll('h1,h2,h3')].map((h) => h.tagName)")
    assert headings[0] == "H1" and headings.count("H1") == 1


def test_dark_where_the_system_is_dark(browser, report):
    page = browser.open(report, dark=True)
    page.wait("document.querySelector('#regret .main-svg')")
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 23)"
    colour = "document.getElementById('regret').data.find((t) => t.name === 'ucrl-mnl').line.color"
    assert page.run(colour) == "#56a8e0"


def test_it_prints(browser, report, tmp_path):
    page = browser.open(report, dark=True)
    page.wait("document.querySelector('#regret .main-svg')")
    page.print(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_at_most_six_learners_are_drawn_at_first(browser, tmp_path):
    """Each with a marker of its own where colours repeat, and with its name at the end."""
    agents = ["ucrl-mnl", "ucrl-mnl-se", "ucbvi", "ucrl2", "psrl", "rlsvi", "random", "optimal"]
    spec = {
        "name": "many", "episodes": 30, "seeds": {"count": 2},
        "environments": [{"name": "riverswim-4"}], "agents": [{"agent": a} for a in agents],
    }  # fmt: skip
    assert execute(parse(spec), tmp_path, jobs=1, command="upriver run 'my spec'").complete
    assert main(["report", str(tmp_path)]) == 0
    page = browser.open((tmp_path / "report.html").as_uri())
    page.wait("document.querySelector('#regret .main-svg')")
    drawn = lines(page, "regret")
    assert len(drawn) == 7 and "random" not in drawn
    page.wait("document.getElementById('regret').layout.annotations?.length === 7")
    labels = page.run("document.getElementById('regret').layout.annotations.map((a) => a.text)")
    assert set(labels) == set(drawn)
    looks = page.run("DATA.agents.map((a) => a.light + a.marker)")
    assert len(set(looks)) == len(looks) == 8
    regret = [drawn[row[0]] for row in cells(page, "totals") if row[0] in drawn]
    assert regret == sorted(regret)
    assert "upriver run 'my spec'" in page.text("#commands")
    page = browser.open((tmp_path / "report.html").as_uri(), 390, 844)
    page.wait("document.querySelector('#regret .main-svg')")
    box = "document.querySelector('#table .scroll')"
    page.run(f"{box}.scrollLeft = 300")
    first = "document.querySelector('#totals tbody th').getBoundingClientRect().left"
    head = "document.querySelector('#totals thead th').getBoundingClientRect().left"
    left = page.run(f"{box}.getBoundingClientRect().left")
    assert abs(page.run(first) - left) < 2 and abs(page.run(head) - left) < 2


def test_labels_that_javascript_has_plans_for(browser, tmp_path):
    """Words that every object of a page inherits are names like any other, there or not there."""
    labels = ["__proto__", "constructor", "hasOwnProperty", "toString"]

    def play(env, agents, first):
        spec = {
            "name": "toString",
            "episodes": 20,
            "seeds": {"first": first, "count": 2},
            "environments": [{"name": "riverswim-4", "label": env}],
            "agents": [{"agent": "ucrl-mnl", "label": agent} for agent in agents],
        }
        assert execute(parse(spec), tmp_path, jobs=1).complete

    play("river", labels, first=0)
    for label in labels:
        play(label, ["plain"], first=1)
    assert main(["report", str(tmp_path)]) == 0
    page = browser.open((tmp_path / "report.html").as_uri())
    page.wait("document.querySelector('#regret .main-svg')")
    for env in labels:
        page.choose("#env", env)
        assert [row[0] for row in cells(page, "totals")] == ["plain"]
        assert set(lines(page, "regret")) == {"plain"}
    page.choose("#env", "river")
    assert [row[0] for row in cells(page, "totals")] == labels
    for agent in labels:
        page.click(f'[data-agent="{agent}"]')
        assert agent not in lines(page, "regret")
    assert page.errors == [] and page.network == []
