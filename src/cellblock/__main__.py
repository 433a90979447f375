"""Run the `cellblock` command as `python -m cellblock`."""

from __future__ import annotations

from .cli import main

if __name__ == "__main__":
    main()
