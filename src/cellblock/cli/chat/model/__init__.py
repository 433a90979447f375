"""The model: which one, what it is told, one answer of it, and what that costs."""
