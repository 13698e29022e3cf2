"""Learning an environment of which nothing is declared: states, successors and rewards are found.

The possible next states of a pair (s, a) are those that were seen there; s changed by every change
that the action has made anywhere, where that is a known state; and one more, NEW, for whatever was
not seen yet. NEW is an outcome like others: the model estimates, with shared features, how likely
it is, from the number of outcomes that were a surprise and were seen only once (as Good and Turing
did), and the optimism of the agent adds the doubt. Arriving in NEW pays the largest reward once,
and is worth what the best known state is worth from there on, at least nothing at all, since an
end may be the best that can happen. What is shared may be wrong where nothing was declared, so the
doubt about an action grows while it is neglected, see `rewards.count_errors`; one that was never
tried is tried in a state that was visited often, see `players.NEGLECT`.

An observation is the name of a state. One with which episodes end is a state of its own that
nobody leaves, or "end" where episodes may also go on with that observation. The task, its features
and the agent are made again when something new was found, at growing intervals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from upriver.agents import rewards
from upriver.agents.base import State
from upriver.agents.ucrl_mnl_se import UCRLMNLSE
from upriver.checks import NUMBER, Array, format_value, is_hashable
from upriver.features import automatic
from upriver.features.automatic import MAX_NUMBER, list_variables
from upriver.mdp import Task
from upriver.mdp.declaring import call_for_number, takes_next_state
from upriver.mdp.names import to_tuples
from upriver.mdp.validation import support_of_triples
from upriver.mnl import model as mnl
from upriver.planning import draw_tie_seed
from upriver.planning.optimism import tilted
from upriver.play.greedy import NEW, greedy_plan

END = "end"
MAX_STATES = 10**6
MAX_ENTRIES = 10**9
"""Steps times states: 12 GB of memory."""
MAX_CHANGES = 20
"""The most frequent changes of an action that are thought possible in other states."""
GROWTH = 1.1
"""The task is made again at the earliest when the number of episodes has grown by this factor."""
PATIENCE = 4
"""NEW is no outcome of a pair any more after this many visits, and as many times the visits after
which the action was a surprise anywhere."""
REFIT = 0.005
"""The model is fitted again when the number of steps has grown by this share."""


class Declared(NamedTuple):
    """What the user has declared of an environment; None is to be found."""

    horizon: int | None = None
    discount: float | None = None
    actions: Sequence[Any] | None = None
    successors: Callable[[Any, Any], Any] | None = None
    reward: Callable[..., Any] | None = None
    features: Callable[[Task], Any] | None = None
    states: Sequence[Hashable] | None = None
    reward_range: tuple[float, float] | None = None


def as_name(what: str, value: Any) -> Any:
    """Return the name of a state: what the user gave with tuples in place of arrays and lists."""
    value = to_tuples(value)
    if type(value) is tuple:
        return tuple(as_name(what, x) for x in value)
    if not is_hashable(value):
        raise TypeError(
            f"{what} is {format_value(value)}, which is not hashable; let `state_of` return a "
            "number, a text or a tuple of these"
        )
    if isinstance(value, float) and value != value:
        raise ValueError(f"{what} has nan, which is no state; let `state_of` return another")
    return value


class Discovery:
    """All that was found of an environment, and the agent that learns from it.

    A node is an observation, with or without the end of an episode, and has a number.
    """

    task: Task
    agent: UCRLMNLSE
    state: State
    place: Array
    """(nodes,) the state of each node in the task."""
    bounds: tuple[float, float]
    """The bounds of rewards with which the task was made."""

    def __init__(self, declared: Declared) -> None:
        """`declared` has the actions and the horizon."""
        self.declared, self.actions = declared, list(declared.actions or ())
        self.nodes: list[tuple[Any, bool]] = []
        """The name of each node and whether episodes end there, in the order of discovery."""
        self.numbers: dict[tuple[Any, bool], int] = {}
        self.seen: dict[tuple[int, int, int], list[float]] = {}
        """Of each triple of nodes (s, a, s'): visits, sum and sum of squares of its rewards in the
        user's units, and whether it was a surprise at first."""
        self.unseen: set[int] = set()
        """Nodes that were declared and not seen yet."""
        self.tries: Counter[tuple[int, int]] = Counter()
        """The visits of each pair."""
        self.latest = [1] * len(self.actions)
        """The largest number of visits after which an action was a surprise in some state."""
        self.masks: dict[int, Any] = {}
        """The actions that a state has, where the environment says so."""
        self.least, self.most = np.inf, -np.inf
        """The rewards seen."""
        self.episodes, self.next_rebuild = 0, 0
        self.rate, self.arrival = 0.0, 1.0
        """What a step in NEW pays, and arriving there, on the unit scale."""
        self.steps = [0, 0]
        """How many steps there were at the last fit, and since."""
        self.present_plan: Any = None
        for name in declared.states or ():
            self.node(as_name("a name in states", name), seen=False)

    def fork(self) -> Discovery:
        """Return a copy that can go on by itself."""
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, list | dict | set):
                setattr(other, name, copy(value))
        other.seen = {key: list(found) for key, found in self.seen.items()}
        # a fit changes the arrays of the model in place
        other.state = self.state._replace(model=mnl.Model(*map(copy, self.state.model)))
        return other

    # -- what was seen ----------------------------------------------------------------------------

    def node(self, name: Any, ended: bool = False, seen: bool = True) -> int:
        """Return the number of a state, which may be a new one.

        A state that was declared, and not `seen` yet, may turn out to be one where episodes end.
        """
        number = self.numbers.get((name, ended))
        if number is None and not seen:
            number = self.numbers.get((name, True))
        if number is None and ended and self.numbers.get((name, False)) in self.unseen:
            number = self.numbers[name, True] = self.numbers.pop((name, False))
            self.nodes[number] = name, True
        if number is None:
            if len(self.nodes) >= MAX_STATES:
                raise ValueError(
                    f"more than {MAX_STATES:,} states were seen; let `state_of` map observations "
                    "to fewer states"
                )
            number = self.numbers[name, ended] = len(self.nodes)
            self.nodes.append((name, ended))
            if not seen:
                self.unseen.add(number)
        if seen:
            self.unseen.discard(number)
        return number

    def see(self, s: int, a: int, s2: int, reward: float) -> None:
        """Remember a step."""
        self.steps[1] += 1
        self.tries[s, a] += 1
        found = self.seen.get((s, a, s2))
        if found is None:
            is_surprise = self.locate(np.array([[s, a, s2]]))[0][0] < 0
            found = self.seen[s, a, s2] = [0.0, 0.0, 0.0, float(is_surprise)]
            if is_surprise:
                self.latest[a] = max(self.latest[a], self.tries[s, a])
        for i, x in enumerate((1.0, reward, reward * reward)):
            found[i] += x
        self.least, self.most = min(self.least, reward), max(self.most, reward)

    def locate(self, triples: Array) -> tuple[Array, Array]:
        """Return the rows in the task of triples of nodes (m, 3), and those of NEW in their pairs;
        -1 where there is none."""
        task, place, (s, a, s2) = self.task, self.place, triples.T
        is_known, is_listed = s < len(place), np.maximum(s, s2) < len(place)
        pair = place[np.where(is_known, s, 0)] * len(self.actions) + a
        last = task.indptr[pair + 1] - 1
        has_new = is_known & (task.sizes[pair] > 0) & (task.successors[last] == task.n_states - 1)
        keys = pair * task.n_states + place[np.where(is_listed, s2, 0)]
        rows = np.minimum(np.searchsorted(task.triple_keys, keys), task.n_triples - 1)
        is_listed &= task.triple_keys[rows] == keys
        return np.where(is_listed, rows, -1), np.where(has_new, last, -1)

    # -- the task ---------------------------------------------------------------------------------

    def reward_range(self) -> tuple[float, float]:
        """Return bounds of rewards: as declared, else those seen and 0, and 1 unless rewards are
        costs."""
        if self.declared.reward_range is not None:
            return self.declared.reward_range
        low, high = min(self.least, 0.0), max(self.most, 0.0)
        return low, high if high == 0.0 and low < 0.0 else max(high, 1.0)

    def rebuild(self, spread: float = 0.0) -> None:
        """Make the task, its features and the agent of all that was found."""
        n_actions, declared, discount = len(self.actions), self.declared, self.declared.discount
        triples = self.list_declared() if declared.successors else self.list_possible()
        # an end whose name is also that of a state where episodes go on is the one state END
        is_end = np.array([ended for _, ended in self.nodes])
        merged = is_end & [(name, False) in self.numbers for name, _ in self.nodes]
        names = [name for (name, _), m in zip(self.nodes, merged, strict=True) if not m]
        place = np.where(merged, len(names), np.cumsum(~merged) - 1)
        for name in [END, NEW] if merged.any() else [NEW]:
            while name in names:  # a state of the environment has that name
                name = f"({name})"
            names.append(name)
        size = len(names)
        steps: Any = declared.horizon if discount is None else 1
        if (entries := steps * size) > MAX_ENTRIES:
            raise ValueError(
                f"a plan for {steps:,} steps and {size:,} states would have {entries:,} entries, "
                f"more than {MAX_ENTRIES:,}; give a shorter `horizon`, or a `discount`"
            )
        final = np.unique([*place[is_end], size - 1])
        s, a, s2 = np.array(list(triples), np.int64).reshape(-1, 3).T
        pair, following = place[s] * n_actions + a, np.append(place, size - 1)[s2]
        stay = np.repeat(final, n_actions)
        pair = np.append(pair, stay * n_actions + np.tile(np.arange(n_actions), len(final)))
        keys = np.unique(pair * size + np.append(following, stay))
        pair, following = np.divmod(keys, size)
        support = support_of_triples(pair, following, size * n_actions)
        self.bounds, self.place = self.reward_range(), place
        known = np.full(len(keys), np.nan)
        known[np.isin(pair // n_actions, final)] = 0.0
        if declared.reward is not None:
            three = takes_next_state(declared.reward)
            for i in np.flatnonzero(np.isnan(known) & (following < size - 1)):
                s, a = divmod(int(pair[i]), n_actions)
                triple = names[s], self.actions[a], *([names[following[i]]] if three else [])
                known[i] = call_for_number("reward", declared.reward, *triple, unknown=True)
        low, high = self.bounds
        bounds = min(low, np.nanmin(known)), max(high, np.nanmax(known))
        known[(following == size - 1) & (pair // n_actions != size - 1)] = bounds[1]
        self.task = Task(
            size, n_actions, steps, *support, states=names, actions=self.actions,
            support="discovered", reward_range=bounds, partial_reward=known, discount=discount,
        )  # fmt: skip
        features = automatic if declared.features is None else declared.features
        self.agent = UCRLMNLSE(self.task, features(self.task))
        model = self.agent.start()
        if spread and self.agent.learns_spread:
            model = model._replace(spread=spread)
        self.state = State(self.episodes + 1, model, self.reward_sums(self.sums()))

    def list_declared(self) -> set[tuple[int, int, int]]:
        """Return the triples that the declared successors allow from the states known so far."""
        successors: Any = self.declared.successors
        found = set(self.seen)
        for s, (name, ended) in enumerate(self.nodes):  # the loop comes to those that it adds
            for a in [] if ended else self.actions_of(s):
                following, what = successors(name, self.actions[a]), f"a successor of {name!r}"
                if not isinstance(following, Iterable):
                    raise TypeError(
                        f"successors({name!r}, {self.actions[a]!r}) is {format_value(following)}; "
                        "it must be a list of states"
                    )
                found |= {(s, a, self.node(as_name(what, x), seen=False)) for x in following}
        return found

    def list_possible(self) -> set[tuple[int, int, int]]:
        """Return the triples that may be possible: seen, by a change seen elsewhere, and NEW.

        Where s' has no variables to compare with those of s, the change is "to s'".
        """
        vectors: list[Any] = [self.vector(name) for name, _ in self.nodes]
        ends = [ended for _, ended in self.nodes]
        going, ending = (
            {v: i for i, v in enumerate(vectors) if v is not None and ends[i] is ended}
            for ended in (False, True)
        )
        # the one end of observations with which episodes may also go on
        end = next((i for v, i in ending.items() if v in going), None)
        changes: list[Counter[Any]] = [Counter() for _ in self.actions]
        for s, a, s2 in self.seen:
            v, w = vectors[s], vectors[s2]
            if v is not None:
                change = s2
                if w is not None and len(v) == len(w):
                    change = tuple(y - x for x, y in zip(v, w, strict=True))
                changes[a][change, ends[s2]] += 1
        common = [[c for c, _ in counter.most_common(MAX_CHANGES)] for counter in changes]
        found = set(self.seen)
        for s, v in enumerate(vectors):
            for a in [] if ends[s] else self.actions_of(s):
                found.add((s, a, -1))
                if v is None:
                    continue
                for change, ended in common[a]:
                    s2 = change
                    if isinstance(change, tuple):
                        if len(change) != len(v):
                            continue
                        w = tuple(x + y for x, y in zip(v, change, strict=True))
                        s2 = going.get(w, ending.get(w))
                        if ended and w in going:  # it may also be the last observation there
                            s2 = ending.get(w, s2 if end is None else end)
                    if s2 is not None:
                        found.add((s, a, s2))
        return found

    def vector(self, name: Any) -> tuple[float, ...] | None:
        """Return the variables of a state, or None where they are no numbers that have exact
        differences."""
        parts = list_variables(name)
        numbers = [x for _, x in parts or [("", None)]]
        if all(isinstance(x, NUMBER) and abs(x) < MAX_NUMBER for x in numbers):
            return tuple(map(float, numbers))
        return None

    def actions_of(self, s: int) -> Any:
        return self.masks.get(s, range(len(self.actions)))

    # -- the agent --------------------------------------------------------------------------------

    def learn(self) -> None:
        """End an episode: fit the model to all that was seen, where that is due.

        Where that fails, as in a function of the user, or is interrupted, all is as it was before.
        """
        k, since = self.episodes + 1, self.state.k
        is_out_of_date = k >= self.next_rebuild or self.reward_range() != self.bounds
        if is_out_of_date or self.steps[1] >= REFIT * sum(self.steps):
            kept = vars(self.fork())
            try:
                if is_out_of_date:
                    self.rebuild(self.state.model.spread)
                    self.next_rebuild = max(k + 1, int(GROWTH * k))
                self.steps, self.present_plan = [sum(self.steps), 0], None
                self.refit(k, since)
                if is_out_of_date:
                    self.value_new()
            except BaseException:
                vars(self).update(kept)
                raise
        self.episodes = k

    def refit(self, k: int, since: int) -> None:
        """Fit the model to all that was seen in the task; the last fit was before episode since."""
        task, agent, model, sums = self.task, self.agent, self.state.model, self.sums()
        weights, counts = agent.choose_weights(model.spread), (sums[0] + sums[3])[None]
        model = mnl.refit(agent.model_features, model, counts, weights)
        model = agent.adapt_spread(model, since, k + 1)
        most = PATIENCE * (1 + np.tile(self.latest, task.n_states))
        is_exhausted = np.repeat(task.by_pair(sums[0]) > most, task.sizes)
        prob = model.prob[0]
        prob[is_exhausted & (task.successors == task.n_states - 1)] = 0.0
        prob /= np.repeat(task.by_pair(prob), task.sizes)
        self.state = State(k + 1, model, self.reward_sums(sums))

    def sums(self) -> Array:
        """Return (4, n) visits, sums and sums of squares of the rewards of each row of the task;
        and for NEW the surprises that were seen only once."""
        rows, new_rows = self.locate(np.array(list(self.seen), np.int64).reshape(-1, 3))
        *seen, is_surprise = np.array(list(self.seen.values())).reshape(-1, 4).T
        n, single = self.task.n_triples + 1, is_surprise * (seen[0] == 1.0)
        sums = [np.bincount(rows + 1, x, n)[1:] for x in seen]  # 0 is outside the task
        return np.array([*sums, np.bincount(new_rows + 1, single, n)[1:]])

    def reward_sums(self, sums: Array) -> rewards.RewardSums:
        """Return those `sums` of rewards on the unit scale."""
        visits, total, squares, _ = sums
        low, unit = self.task.units.low, self.task.units.unit
        scaled = (total - low * visits) / unit
        squares = (squares - 2.0 * low * total + low**2 * visits) / unit**2
        return rewards.RewardSums(scaled, visits, np.maximum(squares, 0.0))

    def plan(self, rng: np.random.Generator) -> Any:
        """Return the optimistic plan, the last one where nothing was fitted since."""
        if self.present_plan is not None:
            return self.present_plan
        task, state, agent = self.task, self.state, self.agent
        sums: Any = state.rewards
        extra = rewards.triple_upper_bound(task, sums, agent.own_errors)
        is_new = task.successors == task.n_states - 1
        # Nobody knows where an action leads that was never tried.
        visits = task.by_pair(sums.visits)
        untried = (visits == 0.0) & (task.by_pair(is_new.astype(float)) > 0.0)
        extra[0, np.repeat(untried, task.sizes)] = 1.0
        extra[0, is_new] = self.arrival
        # Otherwise it would be worth less than a good state is at each step, and never be tried.
        extra[0, np.repeat(untried & (task.sizes == 1), task.sizes)] = 1.0
        extra[0, task.indptr[-1 - task.n_actions] :] = self.rate
        reward, features = np.zeros((1, len(task.sizes))), agent.model_features
        doubt = rewards.count_errors(task, visits, agent.own_errors) / agent.own_errors
        model = mnl.multiply_errors(features, state.model, doubt)
        start, tie_seed = features.layout.product_start, draw_tie_seed(rng)
        self.present_plan = tilted(task, model, reward, start, tie_seed, extra)
        return self.present_plan

    def value_new(self) -> None:
        """Set what arriving in NEW pays, and what NEW pays in each step thereafter.

        Together that is one largest reward, or what the best known state is worth, whichever is
        more, and at least what an end is worth.
        """
        units = self.task.units
        plan = greedy_plan(self.agent, self.state, new_pays_least=False)
        best = plan.v[0, :-1].max(initial=0.0)
        nothing = float(units.to_unit_scale(np.zeros(1))[0])
        self.rate = max(best / units.max_value, nothing)
        more = 1.0 - nothing - units.max_value * (self.rate - nothing)
        self.arrival = nothing + max(more, 0.0)
