"""`upriver diagnose`: the assumptions of the theory, measured on one problem, on one screen."""

from __future__ import annotations


def diagnose(
    environment: str,
    *,
    features: str = "one-hot",
    support: str = "known",
    episodes: int = 100,
    delta: float = 0.05,
    theta_bound: float | None = None,
    runs: int = 0,
) -> int:
    """Measure whether the assumptions of UCRL-MNL hold and what its bounds are worth.

    **Example:** `upriver diagnose riverswim-6 --support local`

    Parameters
    ----------
    environment
        The name of an environment such as riverswim-6, a saved MDP (.npz), or gym:ID.
    features
        The feature map: one-hot, one-hot-indicator, shared (the environment's own features),
        pooled (shared features and an effect of every triple).
    support
        The reachable sets that the learner is given: known, local or full.
    episodes
        The number of episodes K of the regret bound, and of the runs.
    delta
        The bounds hold with probability 1 - delta.
    theta_bound
        The bound L_theta. The default is the norm of theta*.
    runs
        The number of runs of UCRL-MNL that are played to measure coverage and optimism.
    """
    from rich.console import Console
    from rich.table import Table

    from upriver import FiniteMDP, diagnostics, envs
    from upriver.checks import positive_integer
    from upriver.experiments import registry

    positive_integer("runs", runs, least=0)
    if environment.endswith(".npz"):
        mdp = FiniteMDP.load(environment)
    elif environment.startswith("gym:"):
        mdp = envs.from_gymnasium(environment.removeprefix("gym:"))
    else:
        mdp = envs.make(environment)
    feature_map = registry.feature_function(features, envs.split_name(environment)[0])
    varphi = feature_map(mdp.task(support))
    found = diagnostics.diagnose(mdp, varphi, episodes, delta, theta_bound)
    rows = found.table()
    if runs > 0:
        seen = diagnostics.coverage(mdp, varphi, n_episodes=episodes, n_runs=runs, delta=delta)
        rows += seen.table()
    console = Console(highlight=False)
    console.print(f"[bold]{found.name}[/]: {found.features.task.describe()}, features {features}")
    table = Table.grid(padding=(0, 2))
    table.add_column(width=19, no_wrap=True)
    table.add_column(width=11, no_wrap=True, justify="right")
    for row in rows:
        table.add_row(*row.values())
    console.print(table)
    return 0
