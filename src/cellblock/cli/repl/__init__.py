"""`cellblock repl`: a prompt over a live session."""

from .main import command

__all__ = ["command"]
