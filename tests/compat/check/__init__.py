"""The checker of scripts and notebooks."""
