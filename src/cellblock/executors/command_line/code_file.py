"""The file that a block is run from: who writes it, and what becomes of it."""

from __future__ import annotations

from typing import NamedTuple

from ...blocks import CodeBlock, file_name
from ...events import Ended, Event, FileCreated, Output
from ...languages import Language
from ...source_text import source_to_run
from ...startup_files import is_startup_file
from ..workspace.workspace import Workspace

MAX_INLINE_CODE = 1 << 16  # characters; longer code is written to a file, not sent in the request


class CodeFile(NamedTuple):
    """The file of a block.

    has_own_name   the block names the file with `# filename:`
    written_at     change time in nanoseconds; `None` if the server has yet to write the file
    code           the text that the server writes
    """

    name: str
    has_own_name: bool
    written_at: int | None
    code: str = ""


def place_code_file(
    workspace: Workspace,
    block: CodeBlock,
    language: Language,
    *,
    is_temporary: bool,
    server_writes: bool,
) -> CodeFile:
    """Write the block's file, or let the runtime server write it when the block starts.

    A script without a name that `is_temporary` is hidden: `ls` and `*` do not name it. Python's
    file keeps the name that AutoGen gives it.

    Raise `OutsideWorkspace` or `WorkspaceError`.
    """
    code = source_to_run(block.code, block.language)
    if own_name := file_name(block.code):
        name = workspace.resolve(own_name)
        content = code if language.comments else code.partition("\n")[2]
        return CodeFile(name, True, workspace.write(name, content))
    is_hidden = is_temporary and language.name != "python"
    name = workspace.temporary_name(language.suffix, is_hidden=is_hidden)
    if is_temporary and server_writes and len(code) <= MAX_INLINE_CODE:
        workspace.register_running(name)
        return CodeFile(name, False, None, code)
    return CodeFile(name, False, workspace.write_temporary(name, code))


def events_of_saved_block(
    workspace: Workspace, number: int, file: CodeFile, path: str
) -> list[Event]:
    """Return the events of a block that is saved and not run. `path` is shown for its file."""
    changes = list[tuple[str, int]]()
    if not file.has_own_name:
        workspace.mark_finished(file.name)
    elif is_startup_file(file.name):
        changes = workspace.list_changes(file.written_at, exclude=file.name)
    text = f"Code saved to {path}\n"
    return [
        Output(number, "stdout", text),
        *(FileCreated(number, path, size) for path, size in changes),
        Ended(number, 0, "ok"),
    ]
