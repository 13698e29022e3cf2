"""What every fitted model of a log has: its coefficients, under the names of statsmodels."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np

from upriver.checks import Array
from upriver.logs import effects
from upriver.logs.tables import import_packages
from upriver.mnl.fitted import FittedMNL

WIDTH = 80  # characters of a line of a summary


def wrap_lines(lines: Sequence[str]) -> list[str]:
    """Return the lines of a summary, the long ones broken."""
    return [fill(line, WIDTH, subsequent_indent="  ") for line in lines]


class Estimates:
    """The coefficients of a fit and what follows from their covariance."""

    fitted: FittedMNL

    def _labelled(self, values: Array, columns: Any = None) -> Any:
        """Return a pandas series or frame by the names of coefficients."""
        (pd,) = import_packages("a table of coefficients", "pandas")
        names = self.coefficient_names
        if values.ndim == 1:
            return pd.Series(values, names)
        return pd.DataFrame(values, names, columns)

    @property
    def coefficient_names(self) -> list[str]:
        names = self.fitted.names
        return list(names) if names is not None else [f"theta[{i}]" for i in range(len(self.theta))]

    @property
    def theta(self) -> Array:
        """(d,) the estimate (3), without names."""
        return self.fitted.theta

    @property
    def params(self) -> Any:
        """(d,) the coefficients, in log-odds."""
        return self._labelled(self.theta)

    @property
    def bse(self) -> Any:
        """(d,) standard errors of the coefficients."""
        return self._labelled(self.fitted.standard_errors)

    @property
    def tvalues(self) -> Any:
        """(d,) coefficients divided by their standard errors."""
        return self._labelled(self.theta / self.fitted.standard_errors)

    @property
    def pvalues(self) -> Any:
        """(d,) two-sided p-values of the hypotheses that single coefficients are 0."""
        z = np.abs(self.theta / self.fitted.standard_errors)
        return self._labelled(self.fitted.p_values(z))

    def conf_int(self, alpha: float = 0.05) -> Any:
        """Return (d, 2) intervals that hold each coefficient with probability 1 - alpha."""
        return self._labelled(self.fitted.conf_int(alpha))

    def cov_params(self) -> Any:
        """Return (d, d) the covariance of the coefficients."""
        covariance = self.fitted.covariance @ np.eye(len(self.theta))
        return self._labelled(covariance, self.coefficient_names)

    @property
    def llf(self) -> float:
        """The log-likelihood at the estimate, without the penalty."""
        return self.fitted.log_likelihood

    @property
    def aic(self) -> float:
        """Akaike's criterion, 2 d - 2 llf with d coefficients."""
        return self.fitted.aic

    @property
    def bic(self) -> float:
        """Schwarz's criterion, d log(nobs) - 2 llf."""
        return self.fitted.bic

    @property
    def nobs(self) -> float:
        """The number of transitions, or the sum of their weights."""
        return self.fitted.n_observations

    def table(self) -> list[dict[str, Any]]:
        """Return a row per coefficient: name, estimate, standard_error, z, p_value, low, high."""
        return self.fitted.table()

    def to_pandas(self) -> Any:
        """Return the table of coefficients as a data frame."""
        return self.fitted.to_pandas()

    def coefficient_lines(self, limit: int) -> list[str]:
        """Return the first `limit` coefficients as lines of a summary."""
        rows = self.table()
        width = min(max([len(r["name"]) for r in rows[:limit]] + [11]), 24)
        text = ["", f"{'coefficient':<{width}} {'estimate':>9} {'std.err.':>9} {'z':>7} {'p':>8}  "
                     f"{'95% interval':>17}"]  # fmt: skip
        for r in rows[:limit]:
            name = r["name"]
            if len(name) > width:  # a long name has a line of its own
                text.append(fill(name, WIDTH, subsequent_indent="  "))
                name = ""
            text.append(
                f"{name:<{width}} {r['estimate']:9.4g} {r['standard_error']:9.4g} {r['z']:7.2f} "
                f"{r['p_value']:8.2g}  {r['low']:8.4g} {r['high']:8.4g}"
            )
        if len(rows) > limit:
            text.append(f"... and {len(rows) - limit} more")
        return text

    wald = effects.wald
