"""From rows to verdicts: pure functions, and the one loop that runs them."""
