"""The paper's table and figures, and the findings: each a spec and a page."""
