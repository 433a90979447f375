"""LiveKernel: a kernel of Cellblock and a real client of it, for tests."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cli.cli_process import run_command

_TIMEOUT = None  # the hang guard ends a test


@dataclass
class CellReply:
    """The reply to a cell, and the messages that clients show for it."""

    content: dict[str, Any] = field(default_factory=dict[str, Any])
    messages: list[tuple[str, dict[str, Any]]] = field(
        default_factory=list[tuple[str, dict[str, Any]]]
    )

    @property
    def status(self) -> str:
        return self.content["status"]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the content of the messages of one type."""
        return [content for found, content in self.messages if found == kind]

    def text(self, stream: str = "stdout") -> str:
        """Return what was written to a stream."""
        found = self.of_kind("stream")
        return "".join(content["text"] for content in found if content["name"] == stream)

    @property
    def value(self) -> str:
        """The text of the only value that was shown."""
        (content,) = self.of_kind("execute_result")
        return content["data"]["text/plain"]


class LiveKernel:
    """The running kernel of `manager`, whose process was started in `folder`."""

    def __init__(self, manager: Any, folder: Path) -> None:
        self.manager, self.folder = manager, folder
        self.client: Any = manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=_TIMEOUT)

    @property
    def work_dir(self) -> Path:
        return self.folder / "coding"

    def run(
        self,
        code: str,
        *,
        answers: Sequence[str] = (),
        on_message: Callable[[dict[str, Any]], None] | None = None,
        **options: Any,
    ) -> CellReply:
        """Run a cell and wait for its end. `answers` are what the client types for `input()`."""
        reply = CellReply()

        def add_message(message: dict[str, Any]) -> None:
            reply.messages.append((message["msg_type"], message["content"]))
            if on_message is not None:
                on_message(message)

        reply.content = self.client.execute_interactive(
            code,
            allow_stdin=bool(answers),
            stdin_hook=functools.partial(self._type, iter(answers)),
            output_hook=add_message,
            timeout=_TIMEOUT,
            stop_on_error=False,  # the next cell can arrive before the queue is cleared
            **options,
        )["content"]
        return reply

    def _type(self, answers: Iterator[str], _question: object) -> None:
        self.client.input(next(answers))

    def ask(self, request: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Return the content of the reply to a request, such as `complete`."""
        method = getattr(self.client, request)
        return method(*arguments, reply=True, timeout=_TIMEOUT, **options)["content"]


def install(*options: str, name: str = "cellblock") -> None:
    """Install a kernel in the folder that the environment names."""
    done = run_command("kernel", "install", "--no-check", f"--name={name}", *options)
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def jupyter_folders(folder: Path) -> Generator[None]:
    """Make Jupyter use `folder` instead of the user's own."""
    names = {
        "JUPYTER_DATA_DIR": folder / "data",
        "JUPYTER_RUNTIME_DIR": folder / "runtime",
        "JUPYTER_CONFIG_DIR": folder / "config",
        "IPYTHONDIR": folder / "ipython",
    }
    before = dict(os.environ)
    os.environ.update({name: str(path) for name, path in names.items()})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def open_kernel(folder: Path, name: str = "cellblock") -> Generator[LiveKernel]:
    """Start the kernel `name` in `folder`, and shut it down on exit."""
    from jupyter_client.manager import KernelManager

    folder.mkdir(exist_ok=True)
    manager: Any = KernelManager(kernel_name=name)
    manager.start_kernel(cwd=str(folder))
    try:
        kernel = LiveKernel(manager, folder)
        try:
            yield kernel
        finally:
            kernel.client.stop_channels()
    finally:
        manager.shutdown_kernel()
        manager.cleanup_resources()
        manager.context.destroy()
