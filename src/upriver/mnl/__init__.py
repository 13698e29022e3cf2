"""The multinomial-logit transition model: likelihood, estimates, running state, radii."""
