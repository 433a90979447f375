"""The prompts at a terminal: messages, single keys, and answers to `input()`."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import create_output
from rich.cells import cell_len

from ...visible_text import visible
from .answer_text import wrap

if sys.platform != "win32":
    import termios

_PROMPT = "you> "
_ALONE_SECONDS = 0.15  # between a key that is an answer and other keys; fast typists need 0.05


class ChatTerminal:
    """Read what the user types. `history` is the history file; None means none is saved."""

    def __init__(self, history: Path | None) -> None:
        # If one of the streams is redirected to a file, use the other.
        self._output = create_output(always_prefer_tty=True)
        self._messages = PromptSession[str](
            _PROMPT,
            history=InMemoryHistory() if history is None else FileHistory(history),
            enable_history_search=True,
            multiline=True,
            prompt_continuation=" " * len(_PROMPT),
            key_bindings=_message_keys(),
            output=self._output,
        )
        self._lines = PromptSession[str](history=InMemoryHistory(), output=self._output)

    async def read_message(self) -> str:
        """Return the next message. Raise `KeyboardInterrupt` on Ctrl-C and `EOFError` on Ctrl-D.

        Enter ends it, Alt-Enter starts a new line, and pasted lines stay together. While it is
        typed, words are cut at the end of a line; then it is shown again with whole words.
        """
        text = await self._messages.prompt_async(handle_sigint=False)
        if self._messages.app.erase_when_done:
            lines = _wrapped(visible(text), self._output.get_size().columns)
            self._output.write_raw("\n".join(lines) + "\n")
            self._output.flush()
        return text

    async def read_key(self, prompt: str, keys: Sequence[str]) -> str:
        """Return the first of `keys` that is pressed from now on. Raise as `read_message` does.

        What was typed before is dropped, and so are letters of a longer text: they are not an
        answer to this question.
        """
        session = PromptSession[str](
            key_bindings=_single_keys(keys), output=self._output, history=InMemoryHistory()
        )
        clear_typeahead(session.input)
        if sys.platform != "win32":
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        return await session.prompt_async(prompt, handle_sigint=False)

    async def read_answer(self, prompt: str, *, is_hidden: bool = False) -> str:
        """Return a line. Raise as `read_message` does. A hidden answer is not shown."""
        session = PromptSession[str](output=self._output) if is_hidden else self._lines
        return await session.prompt_async(prompt, handle_sigint=False, is_password=is_hidden)


def _wrapped(text: str, columns: int) -> list[str]:
    """Return the lines of a message below its prompt."""
    width = max(20, columns - len(_PROMPT))
    lines = [part for line in text.split("\n") for part in wrap(line, width)]
    return [
        f"{' ' * len(_PROMPT) if number else _PROMPT}{line}" for number, line in enumerate(lines)
    ]


def _message_keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        text, columns = event.current_buffer.text, event.app.output.get_size().columns
        is_cut = any(cell_len(line) + len(_PROMPT) > columns for line in text.split("\n"))
        event.app.erase_when_done = is_cut
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _alt_enter(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    del _enter, _alt_enter  # the key bindings hold them
    return keys


def _single_keys(accepted: Sequence[str]) -> KeyBindings:
    keys = KeyBindings()
    keys.add(Keys.Any)(_LoneKey(accepted).press)

    # Neither a line end nor pasted text is an answer.
    @keys.add("enter")
    @keys.add(Keys.BracketedPaste)
    def _ignore(event: KeyPressEvent) -> None:
        del event

    del _ignore
    return keys


class _LoneKey:
    """Ends a prompt with one of the keys `accepted`, unless it is a letter of a longer text."""

    def __init__(self, accepted: Sequence[str]) -> None:
        self._accepted = accepted
        self._pressed_at = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    def press(self, event: KeyPressEvent) -> None:
        """Accept the key if there is no other shortly before and after it."""
        before, self._pressed_at = self._pressed_at, time.monotonic()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        key = event.key_sequence[0].key.lower()
        is_alone = self._pressed_at - before > _ALONE_SECONDS and key in self._accepted
        event.app.current_buffer.text = key if is_alone else ""  # so that the screen shows it
        if is_alone:
            self._timer = asyncio.get_running_loop().call_later(
                _ALONE_SECONDS, _end_prompt, event.app, key
            )


def _end_prompt(app: Application[str], key: str) -> None:
    if app.future is not None and not app.future.done():
        app.exit(result=key)
