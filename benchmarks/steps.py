"""Environment steps: through the batched public function, and in its compiled part alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.timing import Line, interleaved
from upriver import envs, kernels
from upriver.planning import environment_structure, solve
from upriver.play.rollouts import rollouts

COMPILED, PUBLIC = 1e7, 1e6


def steps(quick: bool, _: bool = False) -> Iterator[Line]:
    """Steps a second, against those asked for; the generator alone shows what is left to win."""
    mdp = envs.riverswim(6, 24)
    task, policy = mdp.true_task, solve(mdp).policy
    n = 500 if quick else 50_000
    many = n * task.horizon
    rng = np.random.default_rng(0)
    uniforms = rng.random((n, task.horizon + 1))
    out = rollouts(mdp, policy, n)
    arguments = (
        environment_structure(mdp), policy, uniforms, *out,
    )  # fmt: skip
    taken = interleaved(
        {
            "public": lambda: rollouts(mdp, policy, n),
            "compiled": lambda: kernels.episodes.play_episodes(*arguments),
            "generator": lambda: rng.random((n, task.horizon + 1)),
        },
        3 if quick else 9,
    )
    rate = {name: many / seconds for name, seconds in taken.items()}
    for name, label, asked in (
        ("public", "up.rollouts", PUBLIC),
        ("compiled", "its compiled part", COMPILED),
    ):
        yield Line(
            "environment steps", label, rate[name], "steps/s", "what is asked for", asked, least=1.0
        )
    yield Line(
        "environment steps", "up.rollouts", rate["public"], "steps/s",
        "NumPy drawing as many uniforms", rate["generator"],
    )  # fmt: skip
