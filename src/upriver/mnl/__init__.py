"""The multinomial-logistic transition model: its likelihood, its estimate, its running state."""
