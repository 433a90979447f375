"""Save blocks that name a file, and report the files that blocks create in the work folder."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

from ...blocks import CodeBlock, file_name
from ...events import Ended, Event, FileCreated, Started
from ...source_text import source_to_run
from ..workspace.workspace import OutsideWorkspace, Workspace


async def run_with_files(
    workspace: Workspace | None,
    number: int,
    block: CodeBlock,
    run: Callable[[], AsyncGenerator[Event, None]],
) -> AsyncGenerator[Event, None]:
    """Yield the events of `run`, and one for each file that the block creates in `workspace`.

    A block that names a file is saved under that name first, so that others can import it. It is
    not run if the name is outside the workspace. Raise `WorkspaceError` if it cannot be saved.
    """
    try:
        code_file = None if workspace is None else _save_named_file(workspace, block)
    except OutsideWorkspace as error:
        yield Started(number, block.language)
        yield Ended(number, 1, "error", message=error.output)
        return
    since, saved = 0 if workspace is None else workspace.file_clock_now(), ""
    async with contextlib.aclosing(run()) as events:
        async for event in events:
            if isinstance(event, Started) and workspace is not None and code_file is not None:
                event = replace(event, code_file=workspace.absolute_path(code_file))
            elif isinstance(event, FileCreated):
                saved = event.path
            elif isinstance(event, Ended) and workspace is not None:
                for path, size in workspace.list_changes(since, exclude=saved):
                    if path != code_file:
                        yield FileCreated(number, path, size)
            yield event


def _save_named_file(workspace: Workspace, block: CodeBlock) -> str | None:
    """Save a block to the file that it names, and return its relative path; None without a name."""
    workspace.check_identity()
    own_name = file_name(block.code)
    if own_name is None:
        return None
    name = workspace.resolve(own_name)
    workspace.write(name, source_to_run(block.code, block.language))
    return name
