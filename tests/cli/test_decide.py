"""`upriver decide`: from a log to a page, in a browser, and what it refuses."""

import html
import re
import shlex

import numpy as np
import pytest

import upriver as up
from upriver.cli import main
from upriver.logs import decision

from ..browser import Browser, needs_browser

LOG = """patient,step,state,action,next_state,cost
{rows}"""
WORDS = ("--formula", "next_state:action", "--horizon", "6", "--reward")


def write_log(folder):
    """300 patients who rest or take a drug; the drug helps."""
    rng, rows = np.random.default_rng(3), []
    for patient in range(300):
        state = "ill"
        for step in range(6):
            action = rng.choice(["drug", "rest"])
            well = 0.7 if action == "drug" else 0.4
            after = "well" if rng.random() < well else "ill"
            cost = 5 if action == "drug" else 1
            rows.append(f"p{patient},{step},{state},{action},{after},{-cost}")
            state = after
    file = folder / "clinic.csv"
    file.write_text(LOG.format(rows="\n".join(rows)))
    return file


def test_a_page(tmp_path, capsys):
    file, page = write_log(tmp_path), tmp_path / "page.html"
    words = [*WORDS, "well=10,ill=-2", "--episode", "patient", "--start", "ill", "--out", str(page)]
    assert main(["decide", str(file), *words]) == 0
    said = capsys.readouterr().out
    assert "a gain of" in said and str(page) in said
    text = page.read_text()
    assert "<script" not in text and "http" not in text.replace("http-equiv", "")
    for word in ("doubly robust", "fitted-Q", "Confounding", "goodness of fit", "drug"):
        assert word in text
    # by hand: -2 at first, then 0.7 * 10 + 0.3 * -2 in each of five steps
    value = float(said.split("worth ")[1].split()[0])
    assert value == pytest.approx(-2 + 5 * (0.7 * 10 - 0.3 * 2), rel=0.08)


def test_values_and_checks_start_where_the_episodes_do(tmp_path, capsys):
    """Every patient starts ill: naming the state changes nothing, without episodes it does."""
    file, page = write_log(tmp_path), tmp_path / "page.html"
    said = []
    for words in (["--episode", "patient"], ["--start", "ill"], []):
        given = [*WORDS, "well=10,ill=-2", *words, "--out", str(page)]
        assert main(["decide", str(file), *given]) == 0
        said.append(float(capsys.readouterr().out.split("worth ")[1].split()[0]))
    assert said[0] == said[1] < said[2] - 1


def test_rewards_from_a_column(tmp_path, capsys):
    file, page = write_log(tmp_path), tmp_path / "page.html"
    assert main(["decide", str(file), *WORDS, "cost", "--out", str(page)]) == 0
    said = capsys.readouterr().out
    assert float(said.split("worth ")[1].split()[0]) == pytest.approx(-6.0)  # resting costs least


def test_columns_with_weights_are_a_reward(tmp_path, capsys):
    """A weight of -1 makes a cost of a reward: the plan then does what was worst before."""
    file, page = write_log(tmp_path), tmp_path / "page.html"
    worth = {}
    for weight in ("2", "-1"):
        words = [*WORDS, f"cost={weight}", "--episode", "patient", "--out", str(page)]
        assert main(["decide", str(file), *words]) == 0
        worth[weight] = float(capsys.readouterr().out.split("worth ")[1].split()[0])
        assert f"{weight} times the mean of cost" in page.read_text()
    assert worth["2"] == pytest.approx(-12.0) and worth["-1"] > 6.0


@pytest.mark.parametrize(("discount", "value"), [("0.9", 54.0), ("1", 6.4)])
def test_a_process_that_never_ends(discount, value, tmp_path, capsys):
    """By hand: -2 at first, then 0.7 * 10 + 0.3 * -2 = 6.4 at every step."""
    file, page = write_log(tmp_path), tmp_path / "page.html"
    words = ["--formula", "next_state:action", "--reward", "well=10,ill=-2", "--start", "ill"]
    assert main(["decide", str(file), *words, "--discount", discount, "--out", str(page)]) == 0
    said = capsys.readouterr().out
    assert float(said.split("worth ")[1].split()[0]) == pytest.approx(value, rel=0.08)
    assert "infinite horizon does not have" in page.read_text()
    for more in ([], ["--discount", "0.9", "--episode",
                 "patient"], ["--discount", "1.5"]):  # fmt: skip
        assert main(["decide", str(file), *words, *more, "--out", str(page)]) == 2
    told = capsys.readouterr().err
    assert told.count("give a horizon, or a discount") == 1 and "episode is 'patient'" in told
    assert "discount is 1.5; it must be at least 0 and less than 1" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sick=1",), "reward names 'sick'; the states are ill, well"),
        (("well",), "has no column 'well'; it has 'patient', 'step', 'state'"),
        (("patient",), "column 'patient' of"),
        (("well=1,well=2",), "--reward names 'well' more than once"),
        (("well=much",), "--reward has 'well=much'; it must be name=number"),
        (("well=1", "--start", "dead"), "start names 'dead'; the states are ill, well"),
        (("well=1", "--episode", "visit"), "has no column 'visit'"),
    ],
)
def test_what_is_refused(words, message, tmp_path, capsys):
    file = write_log(tmp_path)
    assert main(["decide", str(file), *WORDS, *words, "--out", str(tmp_path / "x.html")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


def test_the_command_on_the_page_makes_the_same_page(tmp_path, capsys):
    """Of a log whose name a shell and a browser would read as something else."""
    folder = tmp_path / "a b; touch pwned"
    folder.mkdir()
    file, page = write_log(folder), tmp_path / "page.html"
    file = file.rename(folder / "<script>alert(1)</script> $(x).csv".replace("/", ""))
    words = [*WORDS, "well=10,ill=-2", "--episode", "patient", "--confidence", "0.9", "--out"]
    assert main(["decide", str(file), *words, str(page)]) == 0
    first = page.read_text()
    assert "<script" not in first
    footer = html.unescape(
        re.search(r"<footer><p>Made by <code>(.*)</code></p></footer>", first)[1]
    )
    assert "<script>alert(1)" in footer and "--confidence 0.9" in footer
    page.unlink()
    assert main(shlex.split(footer)[1:]) == 0
    assert page.read_text() == first


def test_the_library_makes_what_the_command_makes(tmp_path, capsys):
    import pandas as pd

    file, page = write_log(tmp_path), tmp_path / "page.html"
    words = ["--cluster", "patient", "--episode", "patient", "--out", str(page)]
    assert main(["decide", str(file), *WORDS, "well=10,ill=-2", *words]) == 0
    frame = pd.read_csv(file)
    made = up.decide(frame, "next_state:action", reward={"well": 10, "ill": -2}, horizon=6,
                     cluster="patient", episode="patient")  # fmt: skip
    assert made.summary() in capsys.readouterr().out
    assert made.checks.rows[0]["value"] == pytest.approx(made.value.value)
    assert made.gain.value == pytest.approx(made.value.value - made.behaviour.value)
    assert made.bound < made.value.value and made.model.fitted.n_clusters == 300
    assert "upriver.decide" in made.save(tmp_path / "other.html").read_text()


@pytest.mark.parametrize("reward", ["cost", "cost ~ state + action", {"cost": -1.0}, {"well": 1}])
def test_a_file_is_read_once(tmp_path, monkeypatch, reward):
    """The file is gone when the fit begins, and the checks of its episodes are the same."""
    file, fit = write_log(tmp_path), decision.fit_transitions
    options = {"reward": reward, "horizon": 6, "cluster": "patient", "episode": "patient",
               "propensity": "action:C(state)", "ended": "well"}  # fmt: skip
    expected = up.decide(file, "next_state:action", **options)

    def fit_without_file(*given, **named):
        file.unlink()
        return fit(*given, **named)

    monkeypatch.setattr(decision, "fit_transitions", fit_without_file)
    made = up.decide(file, "next_state:action", **options)
    assert made.summary() == expected.summary() and made.checks.rows == expected.checks.rows


def test_what_the_page_says(tmp_path, capsys):
    """Validity, what changes, pairs that lack data, a model that does not fit, and its command."""
    rows = ["state,action,next_state,ward,cost"]
    for ward, state, action, after, n in (
        ("east", "ill", "rest", "well", 60), ("east", "ill", "rest", "ill", 40),
        ("west", "ill", "rest", "well", 10), ("west", "ill", "rest", "ill", 90),
        ("east", "ill", "drug", "well", 4), ("west", "ill", "drug", "well", 1),
        ("west", "ill", "drug", "ill", 2), ("east", "well", "rest", "well", 90),
        ("west", "well", "rest", "ill", 30), ("west", "well", "rest", "well", 70),
        ("east", "well", "drug", "well", 40), ("east", "well", "drug", "ill", 2),
    ):  # fmt: skip
        rows += [f"{state},{action},{after},{ward},{i % 3}" for i in range(n)]
    file, page = tmp_path / "wards.csv", tmp_path / "page.html"
    file.write_text("\n".join(rows))
    commands = {
        "misfit": ["--formula", "next_state:action", "--reward", "well=1", "--horizon", "6",
                   "--discount", "0.9", "--start", "ill"],
        "ward": ["--formula", "next_state:action:state + next_state:ward", "--reward",
                 "cost ~ action + ward", "--horizon", "3", "--at", "ward=west"],
        "average": ["--formula", "next_state:action:state + next_state:ward", "--reward", "cost",
                    "--horizon", "3", "--at", "average", "--start", "ill"],
        "by": ["--formula", "next_state:action:state + next_state:ward", "--reward", "well=1",
               "--horizon", "3", "--by", "ward", "--start", "ill"],
    }  # fmt: skip
    said = {}
    for name, words in commands.items():
        assert main(["decide", str(file), *words, "--out", str(page)]) == 0
        said[name] = html.unescape(page.read_text())
        command = re.search(r"Made by <code>(.*)</code></p></footer>", said[name])[1]
        page.unlink()
        assert main(shlex.split(command)[1:]) == 0  # pasted, it makes the same page
        assert html.unescape(page.read_text()) == said[name]
    assert "The model does not fit the log (p = " in said["misfit"]
    assert "Valid for all rows of the log alike. Start: ill (100%)" in said["misfit"]
    assert "6 steps, discounted by 0.9 per step. Reward: well 1, others 0" in said["misfit"]
    said_of_ill = "drug (5 of 6 steps), rest (1 of 6 steps)</td><td>rest 97%, drug 3%</td><td>yes"
    assert said_of_ill in said["misfit"]
    assert "of which the log has fewer than 10 rows" in said["misfit"]  # ill, drug: 7 rows
    assert "Valid for ward = west" in said["ward"] and "estimated from the log" in said["ward"]
    assert "Averages over ward of the individuals of the log" in said["average"]
    assert "does not fit" not in said["ward"] and "Reward: the mean of cost" in said["average"]
    assert "prefers-color-scheme: dark" in said["ward"]
    assert "ward east" in said["by"] and "ward west" in said["by"]  # the gain of each


def test_checks_of_censored_episodes_and_given_propensities(tmp_path, capsys):
    """Column or states that say which episodes ended, column or formula of the propensities."""
    file, page, lines = write_log(tmp_path), tmp_path / "page.html", []
    for i, line in enumerate(file.read_text().splitlines()):
        step = line.split(",")[1]
        stops = i % 7 == 0 or step == "3"
        lines.append(line + (",done,chance" if i == 0 else f",{int(stops)},0.5"))
    kept = [x for x in lines if x.split(",")[1] not in ("4", "5")]
    file.write_text("\n".join(kept))
    words = [*WORDS, "well=10,ill=-2", "--episode", "patient", "--out", str(page)]
    pages = []
    for more in (
        ["--ended", "done"], ["--ended", "done", "--propensity", "chance"],
        ["--ended", "ill, well", "--propensity", "action:C(state)"],
    ):  # fmt: skip
        assert main(["decide", str(file), *words, *more]) == 0
        pages.append(page.read_text())
        footer = re.search(r"Made by <code>(.*)</code></p></footer>", pages[-1])[1]
        command = shlex.split(html.unescape(footer))
        assert set(more) <= set(command)
        page.unlink()
        assert main(command[1:]) == 0  # pasted, it makes the same page
        assert page.read_text() == pages[-1] and "doubly robust" in pages[-1]
    checks = [re.search("doubly robust</th>.*?</tr>", x)[0] for x in pages]
    assert checks[0] != checks[1]  # the propensities that are given are used
    assert main(["decide", str(file), *words]) == 0  # then no episode reaches the horizon
    assert "No episode of the log is followed beyond step 4" in page.read_text()
    capsys.readouterr()
    few = [*WORDS, "well=10", "--ended", "done", "--out", str(page)]
    assert main(["decide", str(file), *few]) == 2
    assert "ended is 'done'; it is for the checks" in capsys.readouterr().err


def test_a_decision_does_not_need_episodes_of_one_cluster(tmp_path):
    """Doctors of a patient may change: the fit is right, only the checks cannot be made."""
    import pandas as pd

    frame = pd.read_csv(write_log(tmp_path))
    frame["doctor"] = np.arange(len(frame)) % 40
    options = {"reward": {"well": 1.0}, "horizon": 6, "cluster": "doctor", "start": "ill"}
    alone = up.decide(frame, "next_state:action", **options)
    made = up.decide(frame, "next_state:action", **options, episode="patient")
    assert made.bound == alone.bound and "must have one cluster" in made.checks


def test_covariates_may_be_words_and_gaps_are_refused_or_dropped(tmp_path, capsys):
    file, page = write_log(tmp_path), tmp_path / "page.html"
    lines = file.read_text().splitlines()
    ward = ["ward", *(("east", "west")[i % 2] for i in range(len(lines) - 2)), ""]
    file.write_text("\n".join(f"{a},{b}" for a, b in zip(lines, ward, strict=True)))
    words = ["--formula", "next_state:action + next_state:ward", "--reward", "well=1", "--horizon",
             "6", "--at", "ward=east", "--out", str(page)]  # fmt: skip
    assert main(["decide", str(file), *words]) == 2
    assert f"{file}:1801 has no 'ward'" in capsys.readouterr().err
    assert main(["decide", str(file), *words, "--missing", "drop"]) == 0
    assert "1 without &#x27;ward&#x27;" in page.read_text()


def test_covariates_are_what_the_columns_of_the_log_hold(tmp_path, capsys):
    """A word "1" is no number, and a truth value is no word; a column of numbers takes a number."""
    file, page = write_log(tmp_path), tmp_path / "page.html"
    lines = file.read_text().splitlines()
    more = ["ward,flag,smoker,dose"]
    more += [f"{(1, 'east')[i % 2]},{i % 3 == 0},{('no', 'yes')[i % 5 == 0]},{i % 7}"
             for i in range(len(lines) - 1)]  # fmt: skip
    file.write_text("\n".join(f"{a},{b}" for a, b in zip(lines, more, strict=True)))
    words = [*WORDS, "well=1", "--out", str(page)]
    words = [*words[2:], "--formula"]
    for name, value, valid in (
        ("ward", "1", "1"), ("flag", "true", "True"), ("flag", "False", "False"),
        ("smoker", "yes", "yes"), ("dose", "2", "2.0"),
    ):  # fmt: skip
        formula = f"next_state:action + next_state:{name}"
        assert main(["decide", str(file), *words, formula, "--at", f"{name}={value}"]) == 0
        assert f"Valid for {name} = {valid}." in page.read_text()
    capsys.readouterr()
    for name, value in (("ward", "west"), ("flag", "yes"), ("dose", "much")):
        formula = f"next_state:action + next_state:{name}"
        assert main(["decide", str(file), *words, formula, "--at", f"{name}={value}"]) == 2
        assert f"column {name!r} holds {value!r}, which the log does not" in capsys.readouterr().err


def test_a_linear_model_of_a_reward_may_compare(tmp_path, capsys):
    """The signs = of a formula do not make numbers of states of it.

    The costs have no error, so the worst of them are the estimates.
    """
    file, page = write_log(tmp_path), tmp_path / "page.html"
    said = []
    for reward in ("cost ~ state + action", "cost ~ I(state == 'ill') + I(action == 'rest')"):
        assert main(["decide", str(file), *WORDS, reward, "--out", str(page)]) == 0
        said.append(float(capsys.readouterr().out.split("worth ")[1].split()[0]))
    assert said[0] == pytest.approx(said[1])


def test_rewards_of_pairs_and_names_that_are_ambiguous(tmp_path):
    import pandas as pd

    frame = pd.read_csv(write_log(tmp_path))
    options = {"horizon": 6, "start": "ill"}
    made = up.decide(frame, "next_state:action", reward={("ill", "drug"): 2, "well": 1}, **options)
    reward = made.task.reward
    pairs = {s: dict(zip(made.task.action_names, reward[i].tolist(), strict=True))
             for i, s in enumerate(made.task.state_names)}  # fmt: skip
    assert pairs == {"ill": {"drug": 2.0, "rest": 0.0}, "well": {"drug": 1.0, "rest": 1.0}}
    for pair, message in (
        (("ill", "surgery"), "reward names 'surgery'; the actions are drug, rest"),
        (("dead", "rest"), "reward names 'dead'; the states are ill, well"),
    ):
        with pytest.raises(ValueError, match=message):
            up.decide(frame, "next_state:action", reward={pair: 1.0}, **options)
    ambiguous = frame.assign(well=frame["cost"])
    message = "reward names 'well', which is a state and an outcome of a column; rename one"
    with pytest.raises(ValueError, match=message):
        up.decide(ambiguous, "next_state:action", reward={"well": 1.0}, **options)
    model = up.fit_transitions("next_state:action", frame, reward={"well": "cost"}, horizon=6)
    with pytest.raises(ValueError, match=message):
        model.at(horizon=6, reward={"well": 1.0})
    assert model.at(horizon=6, reward="well").task.reward.min() == -5.0


@needs_browser
def test_in_a_browser(tmp_path):
    file, page = write_log(tmp_path), tmp_path / "page.html"
    words = [*WORDS, "well=1", "--episode", "patient", "--out", str(page)]
    assert main(["decide", str(file), *words]) == 0
    with Browser() as browser:
        seen = browser.open(page.as_uri(), 390, 844)
        assert seen.run("document.querySelectorAll('#policy tbody tr').length") == 2
        checks = seen.run("document.querySelectorAll('#checks tbody tr').length")
        assert seen.run("document.querySelectorAll('svg circle').length") == 3 + checks
        assert seen.run("document.documentElement.scrollWidth <= innerWidth + 1")
        assert "well" in seen.run("document.querySelector('#policy').textContent")
