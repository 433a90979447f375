"""Which Python runs blocks, and its packages."""
