"""Places: where a cell server runs, and how to reach it."""
