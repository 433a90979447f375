"""The files of a live kernel's blocks: the one that a block names, and those that it makes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

from ...blocks import CodeBlock, file_name
from ...events import Ended, Event, FileCreated, Started
from ..workspace.workspace import OutsideWorkspace, Workspace


async def with_files(
    workspace: Workspace | None,
    number: int,
    block: CodeBlock,
    run: Callable[[], AsyncGenerator[Event, None]],
) -> AsyncGenerator[Event, None]:
    """Give the events of `run`, and those of the files that the block makes in `workspace`.

    A block that names a file is saved under that name first, for others to import; when the name is not in the workspace, it
    is not run. Raises `WorkspaceError`.
    """
    try:
        code_file = None if workspace is None else _write(workspace, block)
    except OutsideWorkspace:
        yield Started(number, block.language)
        yield Ended(number, 1, "error", message="Filename is not in the workspace")
        return
    since, saved = 0 if workspace is None else workspace.now(), ""
    async with contextlib.aclosing(run()) as events:
        async for event in events:
            if isinstance(event, Started) and workspace is not None and code_file is not None:
                event = replace(event, code_file=workspace.shown_name(code_file))
            elif isinstance(event, FileCreated):
                saved = event.path
            elif isinstance(event, Ended) and workspace is not None:
                for path, size in workspace.changed(since, besides=saved):
                    if path != code_file:
                        yield FileCreated(number, path, size)
            yield event


def _write(workspace: Workspace, block: CodeBlock) -> str | None:
    """Write the file that a block names, and give its path below the folder; None without a name."""
    workspace.check()
    own_name = file_name(block.code)
    if own_name is None:
        return None
    name = workspace.place(own_name)
    workspace.write(name, block.code)
    return name
