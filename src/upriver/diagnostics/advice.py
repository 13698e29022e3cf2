"""A diagnosis in words: one line for each finding, with what it means or what to do about it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from upriver.diagnostics.coverage import Coverage
from upriver.diagnostics.report import Diagnosis


class Line(NamedTuple):
    what: str
    value: str | float | None
    advice: str
    mood: Literal["good", "warn", "bad", ""] = ""


def sections(found: Diagnosis, measured: Coverage | None = None) -> dict[str, list[Line]]:
    """{title: its lines}, in the order of the theory."""
    parts = {
        "features": feature_lines(found),
        "transition core (Assumption 1)": core_lines(found),
        "curvature (Assumption 3)": curvature_lines(found),
        f"Theorem 1, K = {found.n_episodes}, delta = {found.delta:g}": bound_lines(found),
        "linear models (Propositions 1, 2)": linear_lines(found),
    }
    if measured is not None:
        parts["measured over runs (Lemmas 1, 2)"] = coverage_lines(measured)
    return parts


def number(x: str | float | None) -> str:
    """Four digits; words as they are, nothing as a dash."""
    if x is None or isinstance(x, str):
        return x or "-"
    return f"{x:.4g}" if x == 0 or 1e-3 <= abs(x) < 1e5 else f"{x:.2e}"


def feature_lines(found: Diagnosis) -> list[Line]:
    shape, zero = found.shape, found.shape.zero_successor
    gain = shape.best_norm_bound < 0.999 * shape.norm_bound
    shorter = "smaller: use features.recentre" if gain else "another zero successor gains nothing"
    if not gain and not zero:
        shorter = "what features.recentre would make of it"
    return [
        Line("U", shape.max_successors, "largest reachable set"),
        Line("d", f"{shape.dimension} of {shape.formal_dimension}", "columns kept, of formal d"),
        Line(
            "rank", "?" if shape.rank is None else shape.rank, "directions that data can tell apart"
        ),
        Line("L_varphi", shape.norm_bound, "largest norm of a feature row"),
        Line("  recentred", shape.best_norm_bound, shorter, "warn" if gain else ""),
        Line("zero successor", "yes", "every (s, a) has one, as Lemma 1 needs", "good")
        if zero
        else Line("zero successor", "no", "Lemma 1 needs one: use features.recentre", "bad"),
    ]


def core_lines(found: Diagnosis) -> list[Line]:
    core = found.core
    h, s, a = core.where
    if core.forbidden is not None:
        fs, fa, f2 = core.forbidden
        why = f"because successor {f2} of (s={fs}, a={fa}) is declared and never happens; "
        reached = f"of the projection, at (s={s}, a={a}); approached as theta grows"
        return [
            Line("theta*", "infinite", why + "KL projection instead", "warn"),
            Line("largest TV error", core.error, reached, "good" if core.error < 1e-3 else "bad"),
        ]
    if core.realizable:
        lines = [
            Line("realizable", "yes", f"log-odds solved to {core.residual:.1g}", "good"),
            Line("||theta*||", core.norm, "minimum norm, taken as L_theta"),
        ]
    else:
        why = "no theta gives these transitions; below, the KL projection"
        cure = f"at (h={h}, s={s}, a={a}): add features there, or use one-hot"
        lines = [
            Line("realizable", "no", why, "bad"),
            Line("largest TV error", core.error, cure, "bad"),
        ]
    if found.theta_bound != core.norm:
        lines.append(Line("L_theta", found.theta_bound, "as given: the ball used below"))
    return lines


def curvature_lines(found: Diagnosis) -> list[Line]:
    if found.kappa is None:
        return [Line("kappa", None, "every (s, a) has one successor: nothing to learn", "good")]
    s, a, x, y = found.kappa.where
    product = f"P({x})P({y}) at (s={s}, a={a})"
    if found.kappa.value <= 0.0:
        return [Line("kappa", "0", f"{product}: no bound holds; use --support known", "bad")]
    label = "kappa at theta*" if found.core.realizable else "kappa at projection"
    lines = [Line(label, found.kappa.value, product)]
    if found.ball is not None:
        lines += [
            Line("  over the ball", found.ball.found, "smallest found; what the proofs need"),
            Line("  certified", found.ball.certified, "no theta of the ball goes below"),
        ]
    if found.curvature is not None:
        least = found.curvature.value
        what = "smallest eigenvalue of Hessian against Gram"
        lines.append(Line("effective", least, what, "bad" if least <= 0.0 else ""))
    return lines


def bound_lines(found: Diagnosis) -> list[Line]:
    if found.bounds is None:
        why = "needs a finite theta*, or give --theta-bound" if found.theta_bound is None else "-"
        return [Line("bound", None, why)]
    bounds, best = found.bounds, found.bounds_at_core
    regret = f"corrected {number(bounds.regret_corrected)}"
    if best:
        regret += f", with kappa at theta* {number(best.regret_corrected)}"
    verdict = Line("verdict", "informative", "smaller than the trivial bound", "good")
    if bounds.vacuous:
        hope = number((best or bounds).first_useful)
        silent = f"says nothing before K = {number(bounds.first_useful)} (at best {hope}): "
        cure = "tune scaled_radius(c), or take c from calibrated_radius"
        verdict = Line("verdict", "vacuous", silent + cure, "bad")
    radius = f"Lemma 1; corrected {number(bounds.radius_corrected)}"
    return [
        Line("lambda_K", bounds.regularization, "regularisation, constant C = 1"),
        Line("beta_K printed", bounds.radius_printed, radius),
        Line("regret printed", bounds.regret_printed, regret),
        Line("trivial bound", bounds.trivial, "K H: no learner loses more"),
        verdict,
    ]


def linear_lines(found: Diagnosis) -> list[Line]:
    models = found.linear_models
    phi = "phi = mean of varphi" if models.derived else "the given phi"
    why = f"{phi}; |1 - range| = {number(models.linear.residual)}"
    proper = Line("proper linear P", "possible", why, "good")
    if not models.linear.possible:
        cure = ": append a constant feature"
        proper = Line("proper linear P", "impossible", why + cure, "warn")
    linear = models.representation
    residual = f"residual {number(linear.residual)} (Frobenius)"
    dense = f"one-hot psi; up to S = {number(models.worst_constant)} for dense ones"
    return [
        proper,
        Line("this P linear", "yes" if linear.exact else "no", residual),
        Line("C_psi, MatrixRL", models.matrix_rl_constant, dense),
    ]


def coverage_lines(measured: Coverage) -> list[Line]:
    numbers, goal = measured.summary(), 1.0 - measured.delta
    inside = f"of runs had theta* inside for all k; goal {goal:.0%}"
    bound = f"elliptical sum; bound {number(numbers['potential_bound'])}"
    return [
        *(
            Line(f"covers, {name}", f"{share:.1%}", inside, "good" if share >= goal else "warn")
            for name, share in numbers["covered"].items()
        ),
        Line("optimism rate", f"{numbers['optimism_rate']:.1%}", "planned V_1 >= V*_1"),
        Line("clip rate", f"{numbers['clip_rate']:.1%}", "values at the cap: the bonus drowns P"),
        Line("tie rate", f"{numbers['tie_rate']:.1%}", "argmax left to chance"),
        Line("potential", numbers["potential"], bound),
    ]
