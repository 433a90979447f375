"""Console: print what agents and teams do."""

from __future__ import annotations

import base64
import contextlib
import inspect
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TypeVar

from ..agents.base import Response, TaskResult
from ..agents.messages import (
    AgentMessage,
    CodeExecutionEvent,
    CodeOutputEvent,
    ModelClientStreamingChunkEvent,
    MultiModalMessage,
    TextMessage,
    UserInputRequestedEvent,
)
from ..models.image import Image
from ..models.messages import RequestUsage
from ..results import CodeResult
from .console_printer import PlainPrinter, TerminalPrinter
from .user_input import UserInputManager

ResultT = TypeVar("ResultT", bound=TaskResult | Response)


async def Console(
    stream: AsyncGenerator[AgentMessage | ResultT, None],
    *,
    no_inline_images: bool = False,
    output_stats: bool = False,
    user_input_manager: UserInputManager | None = None,
) -> ResultT:
    """Print the messages of `run_stream` or `on_messages_stream`, and return the result.

    In a terminal there are colours, code is highlighted, and the output of code is printed while it
    runs. Pictures are saved in a temporary folder, and their paths are printed.

    no_inline_images     do not show pictures in iTerm2
    output_stats         print the tokens of each message, and a summary
    user_input_manager   is told when a request for input was reached

    Raise `ValueError` if `stream` is not a stream, or ends without a result.
    """
    _check_stream(stream)
    printer = (
        TerminalPrinter(inline_images=not no_inline_images)
        if sys.stdout.isatty()
        else PlainPrinter()
    )
    output = _ConsoleOutput(printer, output_stats=output_stats)
    result: ResultT | None = None
    async with contextlib.aclosing(stream):
        async for item in stream:
            if isinstance(item, TaskResult):
                result = item
                await output.print_task_result(item)
            elif isinstance(item, Response):
                result = item
                await output.print_response(item)
            elif isinstance(item, UserInputRequestedEvent):
                await output.end_live()
                if user_input_manager is not None:
                    user_input_manager.notify_event_received(item.request_id)
            elif isinstance(item, ModelClientStreamingChunkEvent | CodeOutputEvent):
                await output.print_live(item)
            else:
                await output.print_message(item)
    if result is None:
        raise ValueError("No TaskResult or Response was processed.")
    return result


def _check_stream(stream: object) -> None:
    if isinstance(stream, AsyncGenerator):
        return
    if inspect.iscoroutine(stream):
        stream.close()  # or else Python warns that it was never awaited
    raise ValueError(
        f"Console prints a stream, not a {type(stream).__name__}. "
        "Pass run_stream(task=...) of an agent or a team, without await."
    )


class _ConsoleOutput:
    """Prints the items of a stream. Text that arrived in pieces is not printed again."""

    def __init__(self, printer: PlainPrinter, *, output_stats: bool) -> None:
        self._printer = printer
        self._output_stats = output_stats
        self._start_time = time.monotonic()
        self._usage = RequestUsage(0, 0)
        # What the pieces on the last line of the screen are together; None if there are none.
        self._live: str | None = None
        self._streamed_ids: set[str] = set()
        # The output of code that is on the screen, by agent, until a message repeats it.
        self._live_output: dict[str, str] = {}

    async def print_live(self, event: ModelClientStreamingChunkEvent | CodeOutputEvent) -> None:
        """Print a piece of an answer, or of the output of code."""
        if isinstance(event, ModelClientStreamingChunkEvent):
            title = type(event).__name__
            if event.full_message_id is not None:
                self._streamed_ids.add(event.full_message_id)
        elif self._printer.shows_live_output:
            title = CodeExecutionEvent.__name__
            output = self._live_output.get(event.source, "")
            self._live_output[event.source] = output + event.content
        else:
            return
        if self._live is None:
            await self._printer.write_header(f"{title} ({event.source})")
            self._live = ""
        await self._printer.write(event.content)
        self._live += event.content

    async def end_live(self) -> str | None:
        """End the line of the pieces, and return what they are together."""
        live, self._live = self._live, None
        if live is not None:
            await self._printer.write("\n")
        return live

    async def print_message(self, message: AgentMessage) -> None:
        """Print a message or an event."""
        live = await self.end_live()
        text = message.to_text()
        output = ""
        if isinstance(message, CodeExecutionEvent | TextMessage):
            output = self._live_output.pop(message.source, "").strip()
        if output and output in text:
            await self._print_around(output, text)
        elif message.id not in self._streamed_ids and text != live:
            await self._printer.write_header(f"{type(message).__name__} ({message.source})")
            await self._printer.write_message(text)
        if isinstance(message, MultiModalMessage):
            await self._print_images(message)
        elif isinstance(message, CodeExecutionEvent):
            await self._printer.write_pictures(*_pictures_of(message.result))
        await self._print_usage(message)

    async def _print_around(self, output: str, text: str) -> None:
        """Print what `text` says before and after the output that is on the screen."""
        before, _, after = text.partition(output)
        for part in (before.strip().partition("\n")[0], after.strip()):
            if part:
                await self._printer.write_message(part)

    async def print_response(self, response: Response) -> None:
        """Print the answer of an agent."""
        await self.end_live()
        message = response.chat_message
        await self._printer.write_header(message.source)
        await self._printer.write_message(message.to_text())
        if isinstance(message, MultiModalMessage):
            await self._print_images(message)
        await self._print_usage(message)
        count = len(response.inner_messages or ())
        await self._print_summary(f"Number of inner messages: {count}\n")

    async def print_task_result(self, result: TaskResult) -> None:
        """Print the summary of a task."""
        await self.end_live()
        await self._print_summary(
            f"Number of messages: {len(result.messages)}\nFinish reason: {result.stop_reason}\n"
        )

    async def _print_images(self, message: MultiModalMessage) -> None:
        images = [part for part in message.content if isinstance(part, Image)]
        await self._printer.write_pictures(images)

    async def _print_usage(self, message: AgentMessage) -> None:
        usage = message.models_usage
        if usage is None:
            return
        self._usage += usage
        if self._output_stats:
            await self._printer.write(
                f"[Prompt tokens: {usage.prompt_tokens}, "
                f"Completion tokens: {usage.completion_tokens}]\n"
            )

    async def _print_summary(self, counts: str) -> None:
        if not self._output_stats:
            return
        duration = time.monotonic() - self._start_time
        await self._printer.write_header("Summary")
        await self._printer.write(
            f"{counts}"
            f"Total prompt tokens: {self._usage.prompt_tokens}\n"
            f"Total completion tokens: {self._usage.completion_tokens}\n"
            f"Duration: {duration:.2f} seconds\n"
        )


def _pictures_of(result: CodeResult) -> tuple[list[Image], list[Path]]:
    """Return the pictures that blocks displayed: those to save, and the files of the others."""
    files = [path for block in result.blocks for path in block.output_files]
    if files:
        return [], files
    images: list[Image] = []
    for display in result.displays:
        for mime_type in ("image/png", "image/jpeg"):
            content = display.get(mime_type)
            if isinstance(content, str):  # code can display anything
                with contextlib.suppress(ValueError):
                    data = base64.b64decode("".join(content.split()), validate=True)
                    images.append(Image.from_bytes(data, mime_type))
    return images, []
