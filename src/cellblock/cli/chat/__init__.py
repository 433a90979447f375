"""`cellblock chat`: a conversation with a model whose code runs here."""

from .main import command

__all__ = ["command"]
