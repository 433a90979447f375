"""SandboxKernel: answer a Jupyter client's requests with a sandboxed session."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import zmq
from ipykernel.kernelbase import Kernel
from IPython.core.inputtransformer2 import TransformerManager

from .. import __version__
from ..errors import CellblockError
from ..executors.session.settings import InputPrompt
from ..safe_output.bundle import clean_bundle, drop_widgets
from .cells import CellRequest, CellRunner
from .history import CellHistory, to_entries
from .magics import complete_magic
from .output import CellOutput, describe_failure
from .reports import as_error, as_mapping
from .session import KernelSession
from .stdin import StdinChannel
from .stream_buffer import StreamBuffer

InputCallback = Callable[[InputPrompt], Awaitable[str]]
MakeSession = Callable[[InputCallback], KernelSession]
_BANNER = f"Cellblock {__version__}: Python {platform.python_version()} in a sandbox"


class SandboxKernel(Kernel):
    """A kernel whose process runs none of the user's code. Call `use_session` before `start`."""

    implementation = "cellblock"
    implementation_version = __version__
    banner = _BANNER
    language_info = {
        "name": "python",
        "version": platform.python_version(),
        "mimetype": "text/x-python",
        "codemirror_mode": {"name": "ipython", "version": 3},
        "pygments_lexer": "ipython3",
        "nbconvert_exporter": "python",
        "file_extension": ".py",
    }

    _cells: CellRunner
    _stdin: StdinChannel
    _buffer: StreamBuffer | None = None  # of the last cell that shows something
    _question_target: tuple[Any, Any]  # the request whose client answers `input()`

    def use_session(self, make_session: MakeSession, *, allows_scripts: bool) -> None:
        """Run cells in the session that `make_session` makes.

        With `allows_scripts`, displays reach the client with their scripts.
        """
        self._history, self._allows_scripts = CellHistory(), allows_scripts
        self._cells = CellRunner(make_session(self._answer_input), self._history)

    def start(self) -> None:
        """Handle requests and SIGINT on the current event loop."""
        super().start()
        loop: Any = self.io_loop  # of Tornado, around an event loop of asyncio
        loop.asyncio_loop.add_signal_handler(signal.SIGINT, self.interrupt)
        loop.add_callback(self._start_session)

    async def _start_session(self) -> None:
        """Start the session early. An error is reported by the first cell."""
        self._stdin = StdinChannel(self.stdin_socket, self.session, self._show_output_before)
        with contextlib.suppress(CellblockError):
            await self._cells.session.executor.start()

    # what the kernel cannot do

    @property
    def kernel_info(self) -> dict[str, Any]:
        """What a client learns of the kernel. ipykernel announces its own debugger."""
        info: dict[str, Any] = super().kernel_info
        features = [name for name in info["supported_features"] if name != "debugger"]
        return {**info, "supported_features": features}

    async def do_debug_request(self, msg: dict[str, Any]) -> dict[str, Any]:
        """Refuse a request of a debugger."""
        return {
            "type": "response",
            "request_seq": msg.get("seq", 0),
            "command": msg.get("command", ""),
            "success": False,
            "message": "The kernel has no debugger. Use %debug or breakpoint().",
        }

    # interrupts

    def pre_handler_hook(self) -> None:
        """Leave SIGINT to the event loop."""

    def post_handler_hook(self) -> None:
        """Leave SIGINT to the event loop."""

    def interrupt(self) -> None:
        """Interrupt the running cell, if any. Can be called from any thread."""
        self._cells.token.cancel()

    async def interrupt_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Answer a client that interrupts by a message."""
        self.interrupt()
        client: Any = self.session
        client.send(stream, "interrupt_reply", {"status": "ok"}, parent, ident=ident)

    # cells

    async def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: dict[str, str] | None = None,
        allow_stdin: bool = False,
        **_more: Any,
    ) -> dict[str, Any]:
        """Run a cell, show what happens, and return the content of the reply."""
        base: Any = self  # without types
        self._question_target = base.get_parent("shell"), self._parent_ident["shell"]
        request = CellRequest(code, self.execution_count, store_history, allow_stdin)
        if silent:
            request = dataclasses.replace(request, number=self.execution_count + 1)
        elif store_history:
            self._history.add(request.number, code)
        else:
            self.execution_count -= 1  # the base class has counted the cell
        output = CellOutput(request.number, allows_scripts=self._allows_scripts)
        values = dict[str, Any]()
        try:
            if silent:
                output = await self._cells.run_silently(request)
            else:
                await self._run_cell(request, output)
            if user_expressions and output.error is None:
                values = await self._evaluate(user_expressions)
        except (CellblockError, ValueError) as error:
            output.error = describe_failure(error)
            if not silent:
                self._send("error", output.error)
        return _reply(request.number, output, values)

    def _abort_queues(self, subshell_id: str | None = None) -> None:
        """Abort all requests that have arrived, after a cell that failed.

        ipykernel 7 would abort the first one only: without its thread for subshells, it stops
        before the others are read.
        """
        base: Any = super()
        if not hasattr(base, "shell_main"):  # ipykernel 6, which queues the end of it itself
            base._abort_queues()
            return
        kernel: Any = self  # without types
        requests, last = kernel.shell_stream, [zmq.Frame(b"stop aborting")]
        kernel._aborting = True
        requests.flush()
        # The message of ipykernel that ends it waits behind those requests.
        kernel.io_loop.call_later(kernel.stop_on_error_timeout, requests._recv_callback, last)

    async def _run_cell(self, request: CellRequest, output: CellOutput) -> None:
        buffer = self._buffer = StreamBuffer(self._send)
        try:
            async with contextlib.aclosing(self._cells.run(request, output)) as messages:
                async for kind, content in messages:
                    buffer.add(kind, content)
        finally:
            buffer.flush()

    def _send(self, kind: str, content: dict[str, Any]) -> None:
        base: Any = self  # without types
        base.send_response(self.iopub_socket, kind, content, channel="shell")

    async def _answer_input(self, prompt: InputPrompt) -> str:
        try:
            return await self._stdin.ask(prompt, *self._question_target)
        except EOFError:  # the session cannot receive "no answer"
            self.interrupt()
            return ""

    async def _show_output_before(self, prompt: InputPrompt) -> None:
        await self._cells.progress.wait(prompt.event_count)
        if self._buffer is not None:
            self._buffer.flush_from_other_context()

    # questions about code

    async def _ask(self, question: str) -> dict[str, Any]:
        next_number: int = self.execution_count + 1  # pyright: ignore[reportUnknownMemberType] - untyped
        return await self._cells.ask(question, next_number)

    async def _evaluate(self, expressions: dict[str, str]) -> dict[str, Any]:
        values = await self._ask(f"evaluate({expressions!r})")
        return {name: self._clean_value(as_mapping(value)) for name, value in values.items()}

    def _clean_value(self, value: dict[str, Any]) -> dict[str, Any]:
        if value.get("status") != "ok":
            return as_error(value)
        return {"status": "ok", **self._clean(value.get("data"), value.get("metadata"))}

    def _clean(self, data: object, metadata: object) -> dict[str, Any]:
        clean = drop_widgets if self._allows_scripts else clean_bundle
        bundle = clean(as_mapping(data), as_mapping(metadata))
        return {"data": bundle.data, "metadata": bundle.metadata}

    async def do_complete(self, code: str, cursor_pos: int) -> dict[str, Any]:
        """Return what Tab offers."""
        start, matches = cursor_pos, list[str]()
        with contextlib.suppress(CellblockError):
            session = self._cells.session.executor
            names = complete_magic(session, code, cursor_pos)
            start, matches = names or await session.complete(code, cursor_pos)
        place = {"cursor_start": start, "cursor_end": cursor_pos}
        return {"status": "ok", "matches": matches, "metadata": {}, **place}

    async def do_inspect(
        self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Any = ()
    ) -> dict[str, Any]:
        """Return the documentation of the name at the cursor."""
        answer = dict[str, Any]()
        with contextlib.suppress(CellblockError):
            answer = await self._ask(f"inspect({code!r}, {cursor_pos!r}, {detail_level!r})")
        bundle = self._clean(answer, {})
        return {"status": "ok", "found": bool(bundle["data"]), **bundle}

    async def do_is_complete(self, code: str) -> dict[str, Any]:
        """Return whether `code` can be run as it is, and how far to indent its next line."""
        status, indent = TransformerManager().check_complete(code)
        return {"status": status, **({"indent": " " * (indent or 0)} if indent is not None else {})}

    async def do_history(
        self,
        hist_access_type: str,
        output: bool,
        raw: bool,
        session: int | None = None,
        start: int | None = None,
        stop: int | None = None,
        n: int | None = None,
        pattern: str | None = None,
        unique: bool = False,
    ) -> dict[str, Any]:
        """Return cells that this kernel has run."""
        match hist_access_type:
            case "tail":
                cells = self._history.tail(n)
            case "range":
                cells = self._history.range(start, stop)
            case _:
                cells = self._history.search(pattern or "*", count=n, unique=unique)
        return {"status": "ok", "history": to_entries(cells, with_output=output)}

    # the end

    async def do_shutdown(self, restart: bool) -> dict[str, Any]:
        """End the session. After a restart, a new process begins a new one."""
        self.interrupt()
        with contextlib.suppress(CellblockError):
            await self._cells.session.executor.stop()
        return {"status": "ok", "restart": restart}


def _reply(number: int, output: CellOutput, values: dict[str, Any]) -> dict[str, Any]:
    if output.error is not None:
        return {"status": "error", "execution_count": number, **output.error}
    result = {"payload": output.payload, "user_expressions": values}
    return {"status": "ok", "execution_count": number, **result}
