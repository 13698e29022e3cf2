"""The paper's Table 1 and its figures, computed again beside the printed values."""
