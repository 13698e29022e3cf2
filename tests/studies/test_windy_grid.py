"""Windy grid: walls, wind by hand, and the shortest path found in two other ways."""

import numpy as np
import pytest
from studies.environments import LEAVE, MOVES, free_cells, windy_grid

import upriver as up
from tests.reference import dense


def test_weights_by_hand():
    mdp = windy_grid(6, wind=5.0)
    task, p = mdp.true_task, mdp.probability[0]
    names = list(MOVES)
    number = {cell: i for i, cell in enumerate(task.states)}
    # (5, 2) is windy, with a neighbour on three sides: south, stay, north; the wall is in the west
    rows = task.rows(number[5, 2], names.index("south"))
    assert [task.states[s] for s in task.successors[rows]] == [(5, 1), (5, 2), (5, 3)]
    weights = np.array([LEAVE * 60 * 5, 1.0, LEAVE])
    assert p[rows] == pytest.approx(weights / weights.sum())
    # (0, 3) is still, beside the first column's edge: south, stay, north, east
    rows = task.rows(number[0, 3], names.index("north"))
    assert p[rows] == pytest.approx(np.array([LEAVE, 1, LEAVE * 60, LEAVE]) / (1 + 62 * LEAVE))


@pytest.mark.parametrize("size", [5, 6, 9, 12])
def test_without_chance_the_value_is_the_length_of_the_shortest_walk(size):
    cells = set(free_cells(size))
    distance, frontier = 0, {(0, 0)}
    seen = set(frontier)
    while (size - 1, size - 1) not in frontier:  # breadth first
        steps = {(x + dx, y + dy) for x, y in frontier for dx, dy in MOVES.values()}
        frontier = (steps & cells) - seen
        seen |= frontier
        distance += 1
    assert distance > 3 * size - 5  # the walls make it walk north, south and north again
    mdp = windy_grid(size, wind=1.0, strength=1e9)
    assert mdp.horizon - up.solve(mdp).v[0, 0] == pytest.approx(distance, abs=1e-4)


def test_the_value_is_the_expected_time_to_the_goal():
    """The shortest expected time by its own iteration, then the law of the time by powers."""
    mdp = windy_grid(5)
    p = dense(mdp)[0][0]
    horizon, goal = mdp.horizon, mdp.n_states - 1
    late = np.zeros(mdp.n_states)  # E[min(time, steps left)]
    walks = []
    for _ in range(horizon):
        q = 1.0 + p @ late
        walks.insert(0, q.argmin(axis=1))
        late = q.min(axis=1)
        late[goal] = 0.0
    assert horizon - up.solve(mdp).v[0, 0] == pytest.approx(late[0], abs=1e-11)
    law, expected = np.eye(mdp.n_states)[0], 0.0
    for walk in walks:
        expected += 1.0 - law[goal]
        law = law @ p[np.arange(mdp.n_states), walk]
    assert expected == pytest.approx(late[0], abs=1e-11)


def test_the_goal_holds_and_wind_costs_time():
    mdp = windy_grid(6)
    goal = mdp.true_task.rows(mdp.n_states - 1, 0)
    assert mdp.true_task.successors[goal].tolist() == [mdp.n_states - 1]
    assert mdp.true_task.states[-1] == (5, 5)
    assert up.solve(windy_grid(6, wind=1.0)).v[0, 0] > up.solve(mdp).v[0, 0] + 3


def test_bad_numbers_are_named():
    with pytest.raises(ValueError, match="size is 4; it must be a whole number of at least 5"):
        windy_grid(4)
    with pytest.raises(ValueError, match="wind is 0; it must be a finite number above 0"):
        windy_grid(wind=0)
