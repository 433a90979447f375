"""Parts of a conversation, for tests."""

from __future__ import annotations

from cellblock import Limits, SandboxSessionCodeExecutor
from cellblock.cli.advice import Advisor
from cellblock.cli.chat.output import ChatOutput


def chat_output(folder: str) -> ChatOutput:
    """Return the output of a conversation whose code runs in `folder`."""
    advisor = Advisor(Limits.unlimited(), has_network=False)
    return ChatOutput(folder=folder, advisor=advisor, has_colours=False)


def session(folder: str) -> SandboxSessionCodeExecutor:
    """Return a session in the work folder `folder`."""
    return SandboxSessionCodeExecutor(60, folder)
