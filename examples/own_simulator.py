"""Your own simulator: a shop that orders stock each evening and learns what customers do.

Any object with `reset` and `step` will do. You say which states there are and where each action
may lead; demand is what nobody knows. Its law is the same whatever the stock, and the features
say so: one log-odds per number of items sold, and one more for "sold out".
"""

import numpy as np

import upriver as up

SHELF, DAYS = 4, 30
PRICE, COST, STORAGE = 5.0, 2.0, 0.4
DEMAND = [0.1, 0.4, 0.3, 0.15, 0.05]  # of 0, 1, ... items a day; hidden from the learner


class Shop:
    """The stock in the morning is the state, the number ordered overnight the action."""

    def reset(self, seed=None):
        self.rng, self.stock = np.random.default_rng(seed), 0
        return self.stock, {}

    def step(self, order):
        filled = min(self.stock + order, SHELF)
        sold = min(self.rng.choice(len(DEMAND), p=DEMAND), filled)
        profit = PRICE * sold - COST * order - STORAGE * filled
        self.stock = filled - sold
        return self.stock, profit, False, False, {}


def successors(stock, order):
    """Somewhere between sold out and nothing sold."""
    return range(min(stock + order, SHELF) + 1)


def varphi(stock, order, left):
    """One indicator for each number sold, against none; selling out is an outcome of its own."""
    filled = min(stock + order, SHELF)
    row = np.zeros(2 * SHELF)
    if filled > left:
        row[filled - left - 1 + (SHELF if left == 0 else 0)] = 1.0
    return row


def main():
    low, high = -COST * SHELF - STORAGE * SHELF, PRICE * SHELF
    task = up.Task.from_successors(
        range(SHELF + 1), range(SHELF + 1), successors, DAYS, reward_range=(low, high)
    )
    names = [f"sold {n}" for n in range(1, SHELF + 1)]
    names += [f"sold out at {n}" for n in range(1, SHELF + 1)]
    phi = up.features.from_function(task, varphi, names)
    agent = up.agents.UCRLMNLSE(task, phi)

    run = up.learn(Shop(), agent, 200, seed=0)
    print(f"first 10 months: {run.returns[:10].mean():.1f} a month")
    print(f"last 10 months: {run.returns[-10:].mean():.1f} a month")

    print("\nwhat to order on the first day:")
    for stock in range(SHELF + 1):
        print(f"  {stock} in stock: order {run.policy.act(stock, 0)}")

    print("\nwhat customers do, against selling nothing:")
    fitted = up.fit_mnl(phi, run.state.model.counts[0], regularization=1e-3)
    for row in fitted.table()[: SHELF - 1]:
        n = int(row["name"].split()[1])
        truth = np.log(DEMAND[n] / DEMAND[0])
        print(
            f"  {row['name']}: log-odds {row['estimate']:6.2f} ± {row['standard_error']:.2f}"
            f"   truth {truth:6.2f}"
        )


if __name__ == "__main__":
    main()
