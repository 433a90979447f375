"""Code for type checkers alone: `scripts/check` runs pyright and mypy on it."""
