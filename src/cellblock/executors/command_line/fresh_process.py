"""Run a block or a program as a fresh process in a place."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from itertools import chain
from pathlib import Path

from ...blocks import CodeBlock, action_for_block
from ...cancellation import Token
from ...errors import FunctionError
from ...events import Ended, Event, Output, Started
from ...languages import LANGUAGES, Action, Language, find_language
from ...results import CodeResult, ResultBuilder
from ...runtime.messages import BlockRequest, RunRequest, RunTerms
from ...source_text import as_utf_8, with_named_program
from ..base import unknown_language
from ..frame_decoder import FrameDecoder
from ..places.base import Place
from ..run_options import RunOptions
from ..workspace.workspace import OutsideWorkspace
from .code_file import MAX_INLINE_CODE, CodeFile, events_of_saved_block, place_code_file
from .program import ProgramRun

_PYTHON = next(language for language in LANGUAGES if language.name == "python")


# Do not add a generator between here and the connection: each one slows down every event.
async def run_block(
    place: Place, number: int, block: CodeBlock, token: Token | None, options: RunOptions
) -> AsyncGenerator[Event, None]:
    """Run one block. See `CodeExecutor._run_block`."""
    language = find_language(block.language)
    settings = place.settings
    action = _action(place, block, language, options) if language else "ignore"
    if language is None or action == "ignore":
        yield Started(number, block.language)
        yield unknown_language(number, block) if language is None else Ended(number, 0, "ok")
        return
    workspace = place.workspace
    workspace.check_identity()
    try:
        file = place_code_file(
            workspace,
            block,
            language,
            is_temporary=settings.cleanup_temp_files and action == "execute",
            server_writes=place.server_writes_files,
        )
    except OutsideWorkspace as error:
        yield Started(number, block.language)
        yield Ended(number, 1, "error", message=error.output)
        return
    code_file = place.shown_path(file.name)
    yield Started(number, block.language, code_file)
    if action == "save":
        for event in events_of_saved_block(workspace, number, file, code_file):
            yield event
        return
    try:
        decoder = FrameDecoder(number, options.lowered(place.limits))
        program = with_named_program(language, block.code)
        frames = place.frames(_request(place, program, file, options), token)
        try:
            async for frame in frames:
                for event in decoder.decode(frame):
                    if isinstance(event, Ended):
                        since = file.written_at or decoder.written_at
                        changes = workspace.change_events(number, since, exclude=file.name)
                        for other in chain(changes, _notes(place, block, event)):
                            yield other
                    yield event
        finally:
            await frames.aclose()
    finally:
        if not file.has_own_name:
            (workspace.remove if settings.cleanup_temp_files else workspace.mark_finished)(
                file.name
            )


def _action(place: Place, block: CodeBlock, language: Language, options: RunOptions) -> Action:
    own = options.execution_policies
    policies = place.settings.execution_policies if own is None else own
    return action_for_block(block, language, policies)


def _notes(place: Place, block: CodeBlock, end: Ended) -> Iterator[Event]:
    if end.exit_code == 0 and (note := place.note_on(block)):
        yield Output(end.block, "stderr", note)


def _request(place: Place, program: Language, file: CodeFile, options: RunOptions) -> BlockRequest:
    job = place.command(program, file.name)._replace(shows_value=options.shows_value)
    write = None if file.written_at is not None else (place.path_in_backend(file.name), file.code)
    return place.program_request(RunRequest(job, place.terms(options, write=write)))


async def run_program(
    place: Place, program: ProgramRun, token: Token | None, options: RunOptions
) -> CodeResult:
    """Run a program in the work folder."""
    builder, decoder = ResultBuilder(), FrameDecoder(0, options.lowered(place.limits))
    builder.add_event(Started(0, "python" if program.script else program.argv[0]))
    write = None
    if program.code_file is not None:
        name, code = program.code_file
        text = as_utf_8(code, Path(name).suffix[1:])
        if place.server_writes_files and len(text) <= MAX_INLINE_CODE:
            write = place.path_in_backend(name), text
        else:
            place.workspace.write(name, text)
    terms = RunTerms(
        place.wall_seconds(options),
        options.written_bytes,
        write=write,
        cpu_seconds=options.cpu_seconds,
    )
    job = program.job(place.seen_work_dir)
    if program.script:
        find = place.isolated_command if program.is_isolated else place.command
        command = find(_PYTHON, program.script)
        job = job._replace(script=command.script, argv=command.argv, env=command.env)
    request = RunRequest(job, terms, program.output_bytes, program.most_output)
    async with contextlib.aclosing(place.frames(request, token)) as frames:
        async for frame in frames:
            for event in decoder.decode(frame):
                builder.add_event(event)
    return builder.result()


async def load_functions(place: Place) -> None:
    """Write the functions module and run it once, so that its errors appear at the start."""
    functions, timeout = place.settings.functions, place.settings.timeout
    name = f"{functions.module_name}.py"
    await asyncio.to_thread(place.workspace.write, name, functions.source)
    wall_seconds = None if timeout is None else max(timeout, 60)
    request = RunRequest(place.command(_PYTHON, name), RunTerms(wall_seconds))
    await load_functions_by(place, place.program_request(request))


async def load_functions_by(place: Place, request: BlockRequest) -> None:
    """Run the request that loads the functions. Raise `FunctionError` with its output."""
    text, exit_code = "", 0
    decoder = FrameDecoder(0, place.limits)
    async for frame in place.frames(request):
        for event in decoder.decode(frame):
            if isinstance(event, Output):
                text += event.text
            elif isinstance(event, Ended):
                exit_code = event.exit_code
    if exit_code != 0:
        raise FunctionError(f"Functions failed to load: {text}")
