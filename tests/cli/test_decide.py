"""`upriver decide`: from a log to a page, in a browser, and what it refuses."""

import html
import re
import shlex

import numpy as np
import pytest

import upriver as up
from upriver.cli import main

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


def plan_value(said):
    """The value of the plan in what the command prints."""
    return re.search(r"^plan (\S+) \[", said, re.MULTILINE)[1]


def test_a_page(tmp_path, capsys):
    file, page = write_log(tmp_path), tmp_path / "page.html"
    words = [
        *WORDS,
        "well=10,ill=-2",
        "--individual",
        "patient",
        "--step",
        "step",
        "--start",
        "ill",
        "--out",
        str(page),
    ]
    assert main(["decide", str(file), *words]) == 0
    said = capsys.readouterr().out
    assert "earns" in said and str(page) in said
    text = page.read_text()
    assert "<script" not in text and "http" not in text.replace("http-equiv", "")
    for word in ("doubly robust", "Confounding", "goodness of fit", "drug"):
        assert word in text
    # by hand: -2 at first, then 0.7 * 10 + 0.3 * -2 in each of five steps
    value = float(plan_value(said))
    assert value == pytest.approx(-2 + 5 * (0.7 * 10 - 0.3 * 2), rel=0.08)


def test_values_and_checks_start_where_the_episodes_do(tmp_path, capsys):
    """Every patient starts ill: naming the state changes nothing, without episodes it does."""
    file, page = write_log(tmp_path), tmp_path / "page.html"
    said = []
    for words in (["--individual", "patient", "--step", "step"], ["--start", "ill"], []):
        given = [*WORDS, "well=10,ill=-2", *words, "--out", str(page)]
        assert main(["decide", str(file), *given]) == 0
        said.append(float(plan_value(capsys.readouterr().out)))
    assert said[0] == said[1] < said[2] - 1


def test_rewards_from_a_column(tmp_path, capsys):
    file, page = write_log(tmp_path), tmp_path / "page.html"
    assert main(["decide", str(file), *WORDS, "cost", "--out", str(page)]) == 0
    said = capsys.readouterr().out
    assert float(plan_value(said)) == pytest.approx(-6.0)  # resting costs least


def test_columns_with_weights_are_a_reward(tmp_path, capsys):
    """A weight of -1 makes a cost of a reward: the plan then does what was worst before."""
    file, page = write_log(tmp_path), tmp_path / "page.html"
    worth = {}
    for weight in ("2", "-1"):
        words = [
            *WORDS,
            f"cost={weight}",
            "--individual",
            "patient",
            "--step",
            "step",
            "--out",
            str(page),
        ]
        assert main(["decide", str(file), *words]) == 0
        worth[weight] = float(plan_value(capsys.readouterr().out))
        assert f"{weight} times cost (a mean of the log)" in page.read_text()
    assert worth["2"] == pytest.approx(-12.0) and worth["-1"] > 6.0


@pytest.mark.parametrize(("discount", "value"), [("0.9", 54.0), ("1", 6.4)])
def test_a_process_that_never_ends(discount, value, tmp_path, capsys):
    """By hand: -2 at first, then 0.7 * 10 + 0.3 * -2 = 6.4 at every step."""
    file, page = write_log(tmp_path), tmp_path / "page.html"
    words = ["--formula", "next_state:action", "--reward", "well=10,ill=-2", "--start", "ill"]
    assert main(["decide", str(file), *words, "--discount", discount, "--out", str(page)]) == 0
    said = capsys.readouterr().out
    assert float(plan_value(said)) == pytest.approx(value, rel=0.08)
    assert "infinite horizon does not have" in page.read_text()
    for more in ([], ["--discount", "1.5"], ["--discount", "0.9", "--step", "step"]):
        assert main(["decide", str(file), *words, *more, "--out", str(page)]) == 2
    told = capsys.readouterr().err
    assert told.count("give --horizon, or --discount") == 1
    assert "--step is 'step'; it needs individual" in told
    assert "discount is 1.5; it must be at least 0 and less than 1" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sick=1",), "--reward names 'sick'; the states and columns are ill, well"),
        (("well",), "has no column 'well'; it has 'patient', 'step', 'state'"),
        (("patient",), "column 'patient' of"),
        (("well=1,well=2",), "--reward names 'well' more than once"),
        (("well=much",), "--reward has 'well=much'; it must be name=number"),
        (("well=1", "--start", "dead"), "--start names 'dead'; the states are ill, well"),
        (("well=1", "--individual", "visit"), "has no column 'visit'"),
        (("well=1", "--at", "age=60"), "--at names 'age'; the covariates of the model are (none)"),
        (("well=1", "--by", "ward"), "--by is 'ward', which the model does not use; put it"),
        (("well=1", "--by", "cost"), "as cost:next_state; the covariates are (none)"),
        (("well=1", "--start", "well=0.6,ill"), "--start has 'ill'; it must be name=number"),
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
    words = [
        *WORDS,
        "well=10,ill=-2",
        "--individual",
        "patient",
        "--step",
        "step",
        "--confidence",
        "0.9",
        "--out",
    ]
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
    words = ["--cluster", "patient", "--individual", "patient", "--out", str(page)]
    assert main(["decide", str(file), *WORDS, "well=10,ill=-2", *words]) == 0
    reward = {"well": 10, "ill": -2}
    model = up.fit_transitions("next_state:action", pd.read_csv(file), reward=reward, horizon=6,
                               cluster="patient", individual="patient")  # fmt: skip
    made = up.decide(model)
    assert made.headline in " ".join(capsys.readouterr().out.split())
    assert made.checks.rows[0]["value"] == pytest.approx(made.value.value)
    assert made.gain.value == pytest.approx(made.value.value - made.behaviour.value)
    assert made.model.fitted.n_clusters == 300
    assert "upriver.decide" in made.save(tmp_path / "other.html").read_text()
    assert "surely" not in made.adjustment and "adjusted for choosing" in made.adjustment
    given = up.decide(model, "rest")
    assert given.gain.value < 0 and "The plan was given" in given.adjustment
    assert "does not show that it is better" in given.headline
    greedy = up.decide(model, "greedy")
    assert "too favourable" in greedy.adjustment and greedy.gain.value == made.gain.value
    same = up.decide(model, "behaviour")
    assert same.gain.value == 0.0 and same.gain.standard_error == 0.0


def test_the_example_of_the_help_works(tmp_path, monkeypatch, capsys):
    from upriver.cli.decide import decide

    write_log(tmp_path)
    monkeypatch.chdir(tmp_path)
    example = re.search(r"Example:\*\* `upriver ([^`]+)`", decide.__doc__)[1]
    assert main(shlex.split(example)) == 0 and (tmp_path / "decision.html").exists()


def test_decide_takes_few_parameters():
    from inspect import signature

    assert len(signature(up.decide).parameters) <= 8
    for function in (up.policy_value, up.compare_policies):
        assert len(signature(function).parameters) <= 6


@pytest.mark.parametrize("reward", ["cost", "cost ~ state + action", {"cost": "cost"}])
def test_the_model_holds_what_a_decision_needs(tmp_path, reward):
    """The file is gone after the fit."""
    file = write_log(tmp_path)
    model = up.fit_transitions(
        "next_state:action", file, reward=reward, horizon=6, cluster="patient", step="step",
        individual="patient",
    )  # fmt: skip
    file.unlink()
    made = up.decide(model.at(reward="cost"))
    assert made.checks.rows[1]["value"] == pytest.approx(made.value.value, abs=0.01)


def test_rewards_of_states_and_columns_together(tmp_path, capsys):
    """By hand: 10 in each step that begins well, and the column, 1 for resting, -5 for drugs."""
    file, page = write_log(tmp_path), tmp_path / "page.html"
    words = ["--start", "ill", "--plan", "rest", "--out", str(page)]
    said = {}
    for reward in ("well=10", "cost=1", "well=10,cost=1"):
        assert main(["decide", str(file), *WORDS, reward, *words]) == 0
        said[reward] = float(plan_value(capsys.readouterr().out))
    assert said["cost=1"] == pytest.approx(-6.0)
    assert said["well=10,cost=1"] == pytest.approx(said["well=10"] - 6.0, abs=2e-2)
    assert "cost (a mean of the log) + well 10, others 0" in page.read_text()


def test_a_start_may_be_a_distribution(tmp_path, capsys):
    file, page = write_log(tmp_path), tmp_path / "page.html"
    said = {}
    for start in ("well", "ill", "ill=0.75,well=0.25"):
        assert main(["decide", str(file), *WORDS, "well=1", "--start", start, "--out",
                     str(page)]) == 0  # fmt: skip
        said[start] = float(plan_value(capsys.readouterr().out))
    mean = 0.25 * said["well"] + 0.75 * said["ill"]
    assert said["ill=0.75,well=0.25"] == pytest.approx(mean, abs=2e-3)


def test_fractional_weights_do_not_stop_a_decision(tmp_path, capsys):
    """Only the test of the fit needs whole numbers, and the page says so."""
    file, page = write_log(tmp_path), tmp_path / "page.html"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0] + ",times", *(f"{x},0.5" for x in lines[1:])]))
    assert main(["decide", str(file), *WORDS, "well=1", "--weights", "times", "--out",
                 str(page)]) == 0  # fmt: skip
    assert "a test of the fit needs whole numbers" in page.read_text()
    assert "goodness_of_fit" not in page.read_text()


def test_an_unused_column_that_looks_like_a_count_is_named(tmp_path, capsys):
    file, page = write_log(tmp_path), tmp_path / "page.html"
    lines = file.read_text().splitlines()
    more = ["times", *(str(1 + i % 3) for i in range(len(lines) - 1))]
    file.write_text("\n".join(f"{a},{b}" for a, b in zip(lines, more, strict=True)))
    for words, warned in (([], True), (["--weights", "times"], False)):
        assert main(["decide", str(file), *WORDS, "well=1", *words, "--out", str(page)]) == 0
        assert ("looks like a count of rows" in page.read_text()) == warned


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
                    "--horizon", "3", "--start", "ill"],
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
    assert "Start: ill 100%, as given" in said["misfit"]
    assert "6 steps, discounted by 0.9 per step. Reward: well 1, others 0" in said["misfit"]
    # at the last step nothing matters, since the reward is that of the state
    assert (
        "<th scope='row'>ill</th><td>drug</td><td>rest 97%, drug 3%</td><td>yes</td><td>7"
        in (said["misfit"])
    )
    assert "of which the log has fewer than 10 rows" in said["misfit"]  # ill, drug: 7 rows
    assert "individuals (each a row) with ward = west" in said["ward"]
    assert "estimated from the log" in said["ward"]
    assert "each with its own ward" in said["average"]
    assert "does not fit" not in said["ward"]
    assert "Reward: cost (a mean of the log)" in said["average"]
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
    words = [
        *WORDS,
        "well=10,ill=-2",
        "--individual",
        "patient",
        "--step",
        "step",
        "--out",
        str(page),
    ]
    pages = []
    for more in (
        ["--ended", "done"], ["--ended", "done", "--propensity", "chance"],
    ):  # fmt: skip
        assert main(["decide", str(file), *words, *more]) == 0
        pages.append(page.read_text())
        footer = re.search(r"Made by <code>(.*)</code></p></footer>", pages[-1])[1]
        command = shlex.split(html.unescape(footer))
        assert set(more) <= set(command)
        page.unlink()
        assert main(command[1:]) == 0  # pasted, it makes the same page
        assert page.read_text() == pages[-1] and "doubly robust" in pages[-1]
    checks = [re.search("doubly robust, 5 folds</th>.*?</tr>", x)[0] for x in pages]
    assert checks[0] != checks[1]  # the propensities that are given are used
    assert main(["decide", str(file), *words]) == 0  # then no episode reaches the horizon
    assert "No patient of the log is followed beyond step 4" in page.read_text()
    capsys.readouterr()
    few = [*WORDS, "well=10", "--ended", "done", "--out", str(page)]
    assert main(["decide", str(file), *few]) == 2
    assert "--ended is 'done'; it needs individual" in capsys.readouterr().err


def test_a_decision_does_not_need_individuals_of_one_cluster(tmp_path):
    """Doctors of a patient may change: the fit is right, only the checks cannot be made."""
    import pandas as pd

    frame = pd.read_csv(write_log(tmp_path))
    frame["doctor"] = np.arange(len(frame)) % 40
    options = {"reward": {"well": 1.0}, "horizon": 6, "cluster": "doctor"}
    model = up.fit_transitions("next_state:action", frame, **options, individual="patient")
    made = up.decide(model)
    assert "must be in one cluster" in made.checks and made.gain.value > 0


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
        assert f"with {name} = {valid}. Start" in page.read_text()
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
        said.append(float(plan_value(capsys.readouterr().out)))
    assert said[0] == pytest.approx(said[1])


def test_rewards_of_pairs_and_names_that_are_ambiguous(tmp_path):
    import pandas as pd

    frame = pd.read_csv(write_log(tmp_path))
    options = {"horizon": 6, "individual": "patient"}
    reward = {("ill", "drug"): 2, "well": 1}
    made = up.decide(up.fit_transitions("next_state:action", frame, reward=reward, **options))
    task = made.model.task
    pairs = {s: dict(zip(task.action_names, task.reward[i].tolist(), strict=True))
             for i, s in enumerate(task.state_names)}  # fmt: skip
    assert pairs == {"ill": {"drug": 2.0, "rest": 0.0}, "well": {"drug": 1.0, "rest": 1.0}}
    message = "reward names 'well', which is a state and an outcome of a column; rename one"
    model = up.fit_transitions("next_state:action", frame, reward={"well": "cost"}, horizon=6)
    with pytest.raises(ValueError, match=message):
        model.at(horizon=6, reward={"well": 1.0})
    assert model.at(horizon=6, reward="well").task.reward.min() == -5.0


def test_a_plan_that_depends_on_covariates_is_shown_for_all(tmp_path):
    """Of states that are words the page had the first set of covariates only."""
    rng, n = np.random.default_rng(0), 2000
    ward, action = rng.choice(["east", "west"], n), rng.choice(["drug", "rest"], n)
    helps = rng.random(n) < np.where((ward == "east") == (action == "drug"), 0.8, 0.3)
    log = {
        "state": rng.choice(["ill", "well"], n), "action": action, "ward": ward,
        "next_state": np.where(helps, "well", "ill"),
    }  # fmt: skip
    model = up.fit_transitions("next_state:action:ward", log, reward={"well": 1.0}, horizon=3)
    made = up.decide(model, "greedy")
    assert "drug when ill (ward east) or well (ward east); rest when ill (ward west) or well" in (
        " ".join(made.summary().split())
    )
    page = html.unescape(made.save(tmp_path / "page.html").read_text())
    for who, do in (("east", "drug"), ("west", "rest")):
        assert f"<th scope='row'>ill</th><td>ward {who}</td><td>{do}</td>" in page


@needs_browser
def test_in_a_browser(tmp_path):
    file, page = write_log(tmp_path), tmp_path / "page.html"
    words = [*WORDS, "well=1", "--individual", "patient", "--step", "step", "--out", str(page)]
    assert main(["decide", str(file), *words]) == 0
    with Browser() as browser:
        seen = browser.open(page.as_uri(), 390, 844)
        assert seen.run("document.querySelectorAll('#policy tbody tr').length") == 2
        checks = seen.run("document.querySelectorAll('#checks tbody tr').length")
        assert seen.run("document.querySelectorAll('svg circle').length") == 4 + checks
        assert seen.run("document.querySelectorAll('header svg circle').length") == 1
        assert seen.run("document.documentElement.scrollWidth <= innerWidth + 1")
        assert "well" in seen.run("document.querySelector('#policy').textContent")
