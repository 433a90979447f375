"""Run a script for AutoGen as `python -m cellblock.compat script.py`."""

from __future__ import annotations

import sys

from .script import run

if __name__ == "__main__":
    run(sys.argv[1:])
