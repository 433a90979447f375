"""What the model is told about its task and about the place where its code runs."""

from __future__ import annotations

from ..settings import ChatSettings

_TASK = (
    "You solve the user's tasks on a computer by writing code. Put Python in ```python blocks and "
    "shell commands in ```sh blocks. All blocks of your message are run in order, the run stops at "
    "the first block that fails, and you are shown the output. Print what you need to know. Never "
    "invent output: write the code, end your message, and wait for the result. Correct your code "
    "if it fails. When the task is done, answer the user in a few sentences without any code block."
)
_RULES = "The file AGENTS.md in the current folder has these instructions for you:"
_LIVE = (
    "Variables and imports of Python blocks are kept from one block to the next, as in a notebook. "
    "Plots and other rich results that a block displays are shown to the user."
)
_FRESH = (
    "Each block is a fresh process: import and load again what you need. "
    "Save plots as PNG files; the user is shown them."
)


def system_prompt(settings: ChatSettings, *, is_live: bool, rules: str = "") -> str:
    """Return the system message. `rules` are what AGENTS.md of the work folder says."""
    has_network = settings.network or settings.executor == "local"
    parts = [
        _TASK,
        _LIVE if is_live else _FRESH,
        "Files in the current folder are kept; put the user's results there.",
        "The network can be used."
        if has_network
        else "There is no network: nothing can be downloaded or installed.",
    ]
    if settings.packages:
        parts.append(f"These packages are installed: {', '.join(settings.packages)}.")
    if settings.timeout is not None:
        parts.append(f"A block is stopped after {settings.timeout:g} seconds.")
    prompt = " ".join(parts)
    return f"{prompt}\n\n{_RULES}\n\n{rules}" if rules else prompt
