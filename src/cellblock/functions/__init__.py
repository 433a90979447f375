"""Functions handed to blocks: requirements, source, the generated module."""
