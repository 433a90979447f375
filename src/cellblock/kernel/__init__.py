"""A sandboxed session as a Jupyter kernel."""
