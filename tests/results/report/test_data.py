"""The numbers of the page are those of the runs."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from upriver.cli import main
from upriver.experiments.store import read_run, run_path, to_bytes
from upriver.results.report import data as report_data
from upriver.results.report import embed_json, fill_template, page
from upriver.results.report.data import collect, round_digits
from upriver.results.runs import read_results
from upriver.results.statistics import summarize


@pytest.fixture(scope="module")
def found(sweep):
    return collect(sweep)


def test_commands_can_be_pasted(sweep, found):
    import shlex

    words = shlex.split(found["commands"][0])
    assert words[:2] == ["upriver", "run"] and words[3:] == ["--out", str(sweep)]
    assert words[2] == str(sweep / "_specs" / found["specs"][0]["file"])


def test_the_numbers_are_plain_json(found):
    json.dumps(found, allow_nan=False)
    assert found["runs"] == 24
    assert [e["name"] for e in found["environments"]] == ["river-4", "river-10"]
    assert found["agents"][0]["name"] == "optimal"


def test_the_table_is_that_of_the_statistics(sweep, found):
    rows = {(r.env, r.agent): r for r in summarize(read_results(sweep).samples)}
    assert len(found["table"]) == len(rows) == 8
    for row in found["table"]:
        other = rows[row["env"], row["agent"]]
        for ours, theirs in (("mean", "mean"), ("sd", "sd"), ("low", "low")):
            assert row[ours] == pytest.approx(getattr(other, theirs), rel=1e-5)
        assert row["stuck"] == pytest.approx([other.stuck, other.stuck_low, other.stuck_high], 1e-3)
        assert row["lost"] == pytest.approx(other.episodes_lost, rel=1e-3, abs=1e-9)
    best = [r for r in found["table"] if r["agent"] == "optimal"]
    assert all(r["share"] == pytest.approx(1.0) for r in best)
    assert "radius" in found["table"][1]["settings"]


def test_curves_end_where_the_runs_end(sweep, found):
    for sample in read_results(sweep).samples:
        curve = found["curves"][sample.env][sample.agent]
        k = sample.returns.shape[1]
        assert curve["x"][0] == 1 and curve["x"][-1] == k
        assert len(curve["x"]) <= report_data.POINTS
        total = sample.regret.sum(axis=1)
        assert curve["regret"]["mean"][-1] == pytest.approx(total.mean(), rel=1e-3, abs=1e-6)
        assert curve["value"]["mean"][0] == pytest.approx(sample.values[:, 0].mean(), rel=1e-3)
        window = curve["window"]
        late = sample.returns[:, -window:].mean()
        assert curve["return"]["mean"][-1] == pytest.approx(late, rel=1e-3, abs=1e-9)
        assert np.allclose(
            [run[-1] for run in curve["seeds"]["regret"]], total, rtol=1e-3, atol=1e-6
        )
    assert found["curves"]["river-10"]["random"]["window"] == 20


def test_rounding_is_that_of_a_single_number(rng):
    x = np.concatenate([rng.normal(size=500) * 10.0 ** rng.uniform(-15, 5, 500), [0.0, 1e6, 3e-30]])
    for many, one in zip(round_digits(x), x, strict=True):
        assert many == pytest.approx(report_data.round_number(one), rel=1e-9, abs=1e-18)
        assert len(repr(many)) <= 10
    assert round_digits(np.array([1.0, np.nan, np.inf])) == [1.0, None, None]


def test_thinning_keeps_both_ends_and_the_beginning():
    at = report_data.choose_positions(10_000, 300)
    assert len(at) <= 300 and at[0] == 0 and at[-1] == 9999
    assert set(range(6)) <= set(at.tolist())
    assert np.array_equal(report_data.choose_positions(50, 300), np.arange(50))


def test_settings_that_no_agent_has_are_shown_as_text(sweep, tmp_path):
    """A file that somebody sealed anew may hold any numbers."""
    folder = shutil.copytree(sweep, tmp_path / "copy")
    record = read_run(min(folder.glob("env=river-4/agent=random/*.parquet")))
    numbers = {"two": {"x": 1, "y": 2}, "text": {"rule": "z"}, "list": [1, [2]], "none": None}
    run = replace(record.run, settings=numbers)
    path = folder / run_path(run)
    table = record.table.drop(["setting"])
    setting = pa.array([run.setting] * len(table))
    path.write_bytes(to_bytes(run, table.add_column(0, "setting", setting)))
    assert main(["report", str(folder)]) == 0
    shown = [row["settings"] for row in collect(folder)["table"]]
    line = "support known · list [1, [2]] · none None · text {'rule': 'z'} · two {'x': 1, 'y': 2}"
    assert line in shown


def test_two_settings_of_one_agent_have_different_labels(sweep, tmp_path):
    from tests.results.conftest import SPEC
    from upriver.experiments import execute
    from upriver.experiments.spec import parse

    folder = tmp_path / "two"
    agents = [{"agent": "ucrl-mnl", "radius": r} for r in (1e-3, 1e-2)]
    for agent in agents:
        small = {**SPEC, "environments": SPEC["environments"][:1], "agents": [agent]}
        execute(parse(small), folder, jobs=1)
    names = [a["name"] for a in collect(folder)["agents"]]
    assert len(names) == 2 and all(n.startswith("ucrl-mnl [") for n in names)


def test_a_damaged_file_is_named_and_left_out(sweep, tmp_path, capsys):
    folder = tmp_path / "copy"
    shutil.copytree(sweep, folder)
    victim = min(folder.glob("env=river-4/agent=random/*.parquet"))
    victim.write_bytes(victim.read_bytes()[:50])
    assert main(["report", str(folder)]) == 1
    assert str(victim) in capsys.readouterr().err
    data = collect(folder)
    assert data["runs"] == 23
    assert str(victim) in data["problems"][0]


def test_failures_are_listed(sweep, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(sweep, folder)
    (folder / "_failed").mkdir(exist_ok=True)
    run = {"env": "river-4", "label": "mine", "seed": 7}
    record = {"error": "ValueError: no", "traceback": "", "run": run}
    (folder / "_failed" / "one.json").write_text(json.dumps(record))
    assert collect(folder)["failures"] == [
        {"env": "river-4", "agent": "mine", "seed": 7, "error": "ValueError: no"}
    ]


def test_wrong_folders_are_errors(tmp_path, capsys):
    assert main(["report", str(tmp_path / "absent")]) == 2
    assert "absent does not exist; it must be a folder of results" in capsys.readouterr().err
    assert main(["plot", str(tmp_path)]) == 2
    assert "not a folder of results" in capsys.readouterr().err


def test_text_cannot_leave_its_element():
    data = {"error": "</script><script>alert(1)</script><!-- \u2028"}
    text = embed_json(data)
    assert "<" not in text and "\u2028" not in text
    assert json.loads(text) == data


def test_parts_are_not_searched_for_parts():
    assert fill_template("a {{x}} b {{y}}", {"x": "{{y}}", "y": "2"}) == "a {{y}} b 2"


def test_the_page_is_one_file(found):
    text = page({**found, "title": "<b>&"})
    assert "<title>&lt;b&gt;&amp; · Upriver report</title>" in text
    assert "connect-src" not in text and "default-src 'none'" in text
    assert len(text) < 7e6


def test_a_thousand_runs_fit(monkeypatch, tmp_path):
    """1,000 runs of 2,000 episodes, made without playing them: the page stays under 15 MB."""
    from upriver.results.runs import Results, Sample

    rng = np.random.default_rng(0)
    settings = {"settings": {"radius": 0.1}, "support": "known", "features": None, "reward": None}
    more = {"about": {"run": settings, "platform": "here"}}
    samples = []
    for e in range(5):
        for a in range(10):
            values = rng.random((20, 2000))
            key = f"river-{e}", f"agent-{a}", f"{e}{a}"
            best = np.ones((20, 2000))
            samples.append(Sample(*key, np.arange(20), values, values, best, **more))
    results = Results(samples, [])
    monkeypatch.setattr(report_data, "read_results", lambda _: results)
    data = collect(tmp_path)
    assert data["runs"] == 1000
    assert len(page(data).encode()) < 15e6


def test_figures_of_a_folder(sweep, tmp_path):
    out = tmp_path / "figures"
    words = ["plot", str(sweep), "learning", "regret-log", "--out", str(out)]
    assert main(words) == 0
    made = {p.name for p in out.iterdir()}
    assert made == {
        f"{kind}.{end}" for kind in ("learning", "regret-log") for end in ("png", "pdf")
    }
