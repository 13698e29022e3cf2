import numpy as np
import pytest
from scipy import optimize

import upriver as up
from tests.building import fit_features, from_rows
from upriver.mnl.likelihood import probabilities
from upriver.planning import start_value

MDP = up.envs.riverswim(4, 10)
TASK = MDP.task("known")
PHI = up.features.shared(TASK)


def draw(rng, m, task=TASK, mdp=MDP):
    """m logged transitions of uniform play from uniform states."""
    s, a = rng.integers(task.n_states, size=m), rng.integers(task.n_actions, size=m)
    dense = np.zeros((task.n_states * task.n_actions, task.n_states))
    i, j, k = mdp.true_task.triples
    dense[i * task.n_actions + j, k] = mdp.probability[0]
    below = np.cumsum(dense, axis=1)[s * task.n_actions + a] < rng.random(m)[:, None]
    s2 = np.minimum(below.sum(axis=1), task.n_states - 1)
    return s, a, s2


def named(log):
    s, a, s2 = log
    return {"state": s, "action": np.array(["left", "right"])[a], "next_state": s2}


@pytest.fixture
def log(rng):
    return named(draw(rng, 3000))


@pytest.fixture
def model(log):
    return fit_features(PHI, log)


def test_every_form_of_a_log_gives_the_same_fit(log, model, tmp_path):
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyarrow import parquet

    frame = pd.DataFrame(log)
    frame.to_csv(tmp_path / "log.csv", index=False)
    parquet.write_table(pa.table(log), tmp_path / "log.parquet")
    forms = [
        frame, pl.DataFrame(log), str(tmp_path / "log.csv"), tmp_path / "log.parquet",
        tuple(log.values()), pa.table(log),
    ]  # fmt: skip
    for form in forms:
        np.testing.assert_array_equal(fit_features(PHI, form).counts, model.counts)
    renamed = frame.set_axis(["from", "by", "to"], axis=1)
    again = fit_features(PHI, renamed, columns=("from", "by", "to"))
    np.testing.assert_array_equal(again.counts, model.counts)


def test_weights_count_rows(log, rng):
    weights = rng.integers(0, 4, size=len(log["state"]))
    repeated = {k: np.repeat(v, weights) for k, v in log.items()}
    expected = fit_features(PHI, repeated)
    given = fit_features(PHI, log, weights=weights)
    by_name = fit_features(PHI, {**log, "times": weights}, weights="times")
    for other in (given, by_name):
        np.testing.assert_array_equal(other.counts, expected.counts)


def test_the_estimate_is_the_maximum_and_covers_the_truth(model):
    phi = model.steps[0]

    def loss(theta):
        return -float(model.counts @ np.log(probabilities(phi, theta)))

    best = optimize.minimize(loss, np.zeros(phi.dimension), method="BFGS", options={"gtol": 1e-7})
    np.testing.assert_allclose(model.fitted.theta, best.x, atol=1e-5)
    truth = {  # log-odds against staying
        "a=1 first right": np.log(0.6 / 0.4),
        "a=1 interior left": np.log(0.05 / 0.6),
        "a=1 interior right": np.log(0.35 / 0.6),
        "a=1 last left": np.log(0.4 / 0.6),
    }
    rows = dict(zip(PHI.names, model.table(), strict=True))
    assert set(rows) == set(truth)
    for name, value in truth.items():
        # 3.5 standard errors, so that the fixed seed is no accident
        assert abs(rows[name]["estimate"] - value) < 3.5 * rows[name]["standard_error"]


def test_likelihood_ratio_is_calibrated_and_has_power(rng):
    """Under a true smaller model p-values are uniform; under a false one they vanish."""
    small = up.features.shared(TASK)
    s, a, s2 = TASK.triples
    extra = ((a == 1) & (s == 1) & (s2 == 2)).astype(float)[:, None]  # state 1 is not special
    large = up.Features(TASK, np.hstack([small.matrix, extra]), [*small.names, "extra"])
    p_values = []
    for _ in range(150):
        logged = named(draw(rng, 1000))
        models = [fit_features(phi, logged) for phi in (small, large)]
        test = models[1].likelihood_ratio(models[0])
        assert test.degrees == 1
        p_values.append(test.p_value)
    # Kolmogorov-Smirnov at about one in a thousand
    gap = np.abs(np.sort(p_values) - (np.arange(150) + 0.5) / 150).max()
    assert gap < 1.95 / np.sqrt(150)
    false = up.Features(TASK, small.matrix[:, [0, 2, 3]])  # that going back is as likely as staying
    logged = named(draw(rng, 1000))
    right, wrong = (fit_features(phi, logged) for phi in (small, false))
    assert right.likelihood_ratio(wrong).p_value < 1e-3


def test_models_that_cannot_be_compared(model, log, rng):
    with pytest.raises(ValueError, match="another log"):
        model.likelihood_ratio(fit_features(PHI, named(draw(rng, 3000))))
    noise = up.Features(TASK, rng.normal(size=(TASK.n_triples, 4)))
    better = up.Features(TASK, PHI.matrix[:, :3])
    smaller = fit_features(better, log)
    with pytest.raises(ValueError, match="not nested: its log-likelihood"):
        fit_features(noise, log).likelihood_ratio(smaller)
    with pytest.raises(ValueError, match="must have fewer"):
        model.likelihood_ratio(model)
    with pytest.raises(ValueError, match="needs regularization=0"):
        model.likelihood_ratio(fit_features(PHI, log, regularization=1.0))


def test_greedy_plan_of_a_large_log_is_nearly_optimal(model):
    plan = up.plan_from_model(model)
    best = start_value(MDP, up.solve(MDP).v)
    assert start_value(MDP, up.evaluate(MDP, plan.policy)) > 0.98 * best
    assert up.Policy.from_plan(plan, TASK).act(0, 0) == "right"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"next_state": 3}, r"row 5 of the frame goes from \(0, 'right'\) to 3.*successors 0, 1$"),
        ({"next_state": 9}, "row 5 of the frame has the next state 9; it must be one of 0, 1"),
        ({"state": -1}, "row 5 of the frame has the state -1"),
        ({"action": "up"}, r"row 5 of the frame goes from \(0, 'up'\) to 0, which is not among"),
    ],
)
def test_a_bad_row_is_named(change, message, tmp_path):
    import pandas as pd

    log = {"state": [0] * 8, "action": ["right"] * 8, "next_state": [0] * 8}
    for column, value in change.items():
        log[column][5] = value
    with pytest.raises(ValueError, match=message):
        fit_features(PHI, log)
    pd.DataFrame(log).to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(ValueError, match=r"log\.csv:7 "):  # the line of the file, below the head
        fit_features(PHI, tmp_path / "log.csv")


@pytest.mark.parametrize("form", ["lists", "mapping", "frame", "parquet"])
def test_states_that_are_tuples_work_in_every_form(form, tmp_path):
    """A list of pairs is a column of states, not a table of numbers."""
    import pandas as pd
    import pyarrow as pa
    from pyarrow import parquet

    states = [(0, 0), (0, 1), (1, 1)]
    task = up.Task.from_successors(states, ["go"], lambda s, a: states, 3, lambda s, a: 0.0)
    phi = up.features.from_function(task, lambda s, a, s2: [s2 == (0, 1), s2 == (1, 1)])
    log = {
        "state": [(0, 0), (0, 0), (1, 1), (0, 1)],
        "action": ["go"] * 4,
        "next_state": [(0, 1), (1, 1), (0, 0), (0, 0)],
    }
    parquet.write_table(pa.table(log), tmp_path / "log.parquet")
    given = {
        "lists": tuple(log.values()),
        "mapping": log,
        "frame": pd.DataFrame(log),
        "parquet": tmp_path / "log.parquet",
    }[form]
    model = fit_features(phi, given, regularization=1.0)
    assert model.counts.tolist() == [0, 1, 1, 1, 0, 0, 1, 0, 0]


def test_a_fit_looks_only_at_pairs_of_the_log():
    """Few rows on a wide problem: the same estimate as from the few pairs alone."""
    from upriver.mnl.fit import visited

    rng = np.random.default_rng(3)
    n_states, width = 400, 60
    indptr = np.arange(n_states * 10 + 1) * width
    sets = [np.sort(rng.choice(n_states, width, replace=False)) for _ in range(n_states * 10)]
    task = up.Task(n_states, 10, 5, indptr, np.concatenate(sets), np.zeros((n_states, 10)))
    phi = up.Features(task, rng.normal(size=(task.n_triples, 12)))
    g, place = np.array([5, 77, 900, 3000]), np.array([0, 3, 7, 59])
    counts = np.bincount(g * width + place, minlength=task.n_triples)
    fitted = up.fit_mnl(phi, counts, regularization=1.0)
    assert len(visited(phi, counts, 1.0).visits) == 4
    x = phi.matrix[(indptr[g][:, None] + np.arange(width)).ravel()]
    chosen = np.arange(width) == place[:, None]
    few = up.fit_choices(x, chosen.ravel(), np.repeat(g, width), regularization=1.0)
    np.testing.assert_allclose(fitted.theta, few.theta, atol=1e-8)


def test_damaged_files_are_refused_with_a_sentence(log, rng, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "log.parquet"
    parquet.write_table(pa.table({k: v[:50] for k, v in log.items()}), path)
    whole = path.read_bytes()
    refused = 0
    for i in range(300):
        damaged = bytearray(whole)
        if i % 3 == 0:
            damaged = damaged[: int(rng.integers(len(whole)))]
        else:
            for at in rng.integers(len(whole), size=int(rng.integers(1, 20))):
                damaged[at] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(damaged))
        try:
            fit_features(PHI, path, regularization=1.0)
        except ValueError as error:  # a sentence that names the file or the row
            assert "log.parquet" in str(error) and "\n" not in str(error)
            refused += 1
    assert refused > 200


def test_uniform_play_takes_every_available_action_alike(rng):
    """The first state lacks one of four actions: its log has a third of each of the others."""
    n = 6000
    rows = {(s, a): {1 - s: 1.0} for s in range(2) for a in range(4) if (s, a) != (0, 1)}
    task = from_rows(rows, dict.fromkeys(rows, 0.0), n).task()
    played = up.agents.Random(task).plan(None, rng).policy
    for s, shares in enumerate(([1 / 3, 0.0, 1 / 3, 1 / 3], [1 / 4] * 4)):
        found = np.bincount(played[:, s], minlength=4) / n
        assert np.abs(found - shares).max() < 4.5 * np.sqrt(2 / 9 / n)
        assert found[1] == 0.0 or s == 1
