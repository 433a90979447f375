"""The prompt at a terminal: edit blocks with history and colours, and answer `input()`."""

from __future__ import annotations

from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer
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
    """Read blocks and answers. `history` is the history file; None means no history is saved."""

    def __init__(self, history: Path | None, completer: Completer) -> None:
        output = _output()
        self._blocks = PromptSession[str](
            ">>> ",
            multiline=True,
            prompt_continuation="... ",
            history=InMemoryHistory() if history is None else FileHistory(history),
            enable_history_search=True,
            lexer=PygmentsLexer(PythonLexer),
            completer=completer,
            complete_while_typing=False,
            key_bindings=_key_bindings(),
            output=output,
        )
        self._answers = PromptSession[str](history=InMemoryHistory(), output=output)

    async def read_block(self, draft: str = "") -> str:
        """Return the next block, of which `draft` is typed already.

        Raise `KeyboardInterrupt` on Ctrl-C and `EOFError` on Ctrl-D.
        """
        # `ReplInterrupts` handles SIGINT, also while a block runs.
        return await self._blocks.prompt_async(default=draft, handle_sigint=False)

    async def read_answer(self, prompt: str, *, is_hidden: bool) -> str:
        """Return a line that answers `prompt`. Raise the same errors as `read_block`.

        A hidden answer is not shown, and not saved in the history.
        """
        session = PromptSession[str](output=self._answers.output) if is_hidden else self._answers
        return await session.prompt_async(prompt, handle_sigint=False, is_password=is_hidden)


def _output() -> Output:
    # If one of the streams is redirected to a file, use the other.
    return create_output(always_prefer_tty=True)


def _key_bindings() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter", filter=has_focus(DEFAULT_BUFFER))
    def _enter(event: KeyPressEvent) -> None:
        """Run the block if it is complete; otherwise start its next line.

        While completions are shown, accept the chosen one.
        """
        buffer = event.current_buffer
        if buffer.complete_state and buffer.complete_state.current_completion:
            buffer.complete_state = None
            return
        indent = 0 if buffer.document.text_after_cursor.strip() else missing_indent(buffer.text)
        if indent is None:
            buffer.text = buffer.text.rstrip()  # remove the empty line that ended the block
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n" + " " * indent)

    @keys.add("tab", filter=has_focus(DEFAULT_BUFFER))
    def _tab(event: KeyPressEvent) -> None:
        """Complete; at the start of a line, indent."""
        buffer = event.current_buffer
        if buffer.complete_state:
            buffer.complete_next()
        elif buffer.document.current_line_before_cursor.strip():
            buffer.start_completion(insert_common_part=True)
        else:
            buffer.insert_text(" " * (_INDENT - buffer.document.cursor_position_col % _INDENT))

    del _enter, _tab  # the key bindings hold them
    return keys
