"""The prompt of a terminal: lines with history and colours, and the answers to `input()`."""

from __future__ import annotations

from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.output import Output, create_output
from pygments.lexers.python import PythonLexer

from .statement_splitter import missing_indent

_INDENT = 4


class Terminal:
    """Read blocks and answers. `history`: the file of blocks typed before; None: they are kept until the end alone."""

    def __init__(self, history: Path | None) -> None:
        output = _output()
        self._blocks = PromptSession[str](
            ">>> ",
            multiline=True,
            prompt_continuation="... ",
            history=InMemoryHistory() if history is None else FileHistory(history),
            enable_history_search=True,
            lexer=PygmentsLexer(PythonLexer),
            key_bindings=_keys(),
            output=output,
        )
        self._answers = PromptSession[str](history=InMemoryHistory(), output=output)

    async def read(self) -> str:
        """Give the next block. Raises `KeyboardInterrupt` on Ctrl-C and `EOFError` on Ctrl-D."""
        # Signals have another listener, who is there while cells run as well.
        return await self._blocks.prompt_async(handle_sigint=False)

    async def ask(self, prompt: str) -> str:
        """Give a line that answers `prompt`. Raises as `read` does."""
        return await self._answers.prompt_async(prompt, handle_sigint=False)


def _output() -> Output:
    return create_output(
        always_prefer_tty=True
    )  # where one of the two streams goes to a file, the other one


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter", filter=has_focus(DEFAULT_BUFFER))
    def _enter(event: KeyPressEvent) -> None:
        """Run a complete block; otherwise begin its next line."""
        buffer = event.current_buffer
        indent = 0 if buffer.document.text_after_cursor.strip() else missing_indent(buffer.text)
        if indent is None:
            buffer.text = buffer.text.rstrip()  # the empty line that ended it
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n" + " " * indent)

    @keys.add("tab", filter=has_focus(DEFAULT_BUFFER))
    def _tab(event: KeyPressEvent) -> None:
        """Indent."""
        buffer = event.current_buffer
        buffer.insert_text(" " * (_INDENT - buffer.document.cursor_position_col % _INDENT))

    del _enter, _tab  # the keys know them
    return keys
