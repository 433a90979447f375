"""POST /run_code: compile and run a program in a session of its own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, BinaryIO

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from ....blocks import CodeBlock
from ....limits import MIB
from ....results import CodeResult
from ...http.bodies import read_json
from ...http.disconnect import run_while_connected
from ...http.endpoints import Endpoints, json_error
from ...http.services import Services
from ...owners import Owner
from ...refusals import FileMissing, InvalidRequest
from ...sessions.files import SessionFiles
from .languages import TOOLCHAINS, Toolchain, check_script, compile_script, run_script
from .messages import RunCodeRequest, answer, command_result

RunScript = Callable[[str, float], Awaitable[CodeResult]]
_STREAMS = ".streams"  # folder of stdin, stdout and stderr in the session's folder
_MAX_STREAM_BYTES = 64 * MIB  # of one stream in an answer
_CHECK_SECONDS = 10.0


def sandbox_fusion_routes(services: Services) -> list[BaseRoute]:
    """Return the routes of the door, which accept any prefix."""
    make = Endpoints(services, "sandbox_fusion", json_error).suffix_route
    return [make("POST", "/run_code", ProgramRuns(services).run_code)]


class ProgramRuns:
    """Run programs, at most one for each CPU, so that none is late because of the others."""

    def __init__(self, services: Services) -> None:
        self._store = services.store
        self._places = asyncio.Semaphore(os.cpu_count() or 1)

    async def run_code(self, request: Request, owner: Owner) -> Response:
        """Answer POST /run_code."""
        body = await read_json(request, RunCodeRequest, self._store.settings.max_body_bytes)
        toolchain = TOOLCHAINS.get(body.language)
        if toolchain is None:
            known = ", ".join(TOOLCHAINS)
            raise InvalidRequest(f"The language {body.language!r} is unknown. Use one of: {known}.")
        work = self._run(owner, body, toolchain, body.decoded_files())
        return JSONResponse(await run_while_connected(request, work))

    async def _run(
        self, owner: Owner, body: RunCodeRequest, toolchain: Toolchain, given: dict[str, bytes]
    ) -> dict[str, Any]:
        async with self._store.batch(owner, self._places) as (session, execute):
            await asyncio.to_thread(_write_files, session.files, body, toolchain, given)

            async def run(script: str, seconds: float) -> CodeResult:
                return await execute(CodeBlock(script, "bash"), seconds)

            return await self._judge(session.files, run, body, toolchain)

    async def _judge(
        self, files: SessionFiles, run: RunScript, body: RunCodeRequest, toolchain: Toolchain
    ) -> dict[str, Any]:
        compiled = None
        if (await run(check_script(toolchain.program), _CHECK_SECONDS)).exit_code != 0:
            missing = f"{toolchain.program} is not installed, which {body.language} needs."
            return answer("SandboxError", missing)
        if toolchain.compile:
            result = await run(compile_script(toolchain), body.compile_timeout)
            compiled = command_result(result, result.stdout, result.stderr)
            if result.exit_code != 0:
                return answer("Failed", compiled=compiled)
        result = await run(run_script(toolchain, _STREAMS, body.memory_bytes), body.run_timeout)
        ran = command_result(
            result,
            await asyncio.to_thread(_read_text, files, f"{_STREAMS}/stdout"),
            await asyncio.to_thread(_read_text, files, f"{_STREAMS}/stderr") + result.stderr,
        )
        fetched = await asyncio.to_thread(_fetch, files, body.fetch_files)
        status = "Success" if result.exit_code == 0 else "Failed"
        return answer(status, compiled=compiled, ran=ran, files=fetched)


def _write_files(
    files: SessionFiles, body: RunCodeRequest, toolchain: Toolchain, given: dict[str, bytes]
) -> None:
    for name, content in {
        **given,
        toolchain.file: body.code.encode(errors="replace"),
        f"{_STREAMS}/stdin": (body.stdin or "").encode(errors="replace"),
    }.items():
        files.write(name, partial(_write, content))


def _write(content: bytes, file: BinaryIO) -> None:
    file.write(content)


def _read_text(files: SessionFiles, name: str) -> str:
    """Return the head of a file as text; "" if the program has removed it."""
    with contextlib.suppress(FileMissing), files.open(name) as file:
        return file.read(_MAX_STREAM_BYTES).decode(errors="replace")
    return ""


def _fetch(files: SessionFiles, names: list[str]) -> dict[str, str]:
    """Return the files that exist, as base64."""
    found = dict[str, str]()
    for name in names:
        with contextlib.suppress(FileMissing), files.open(name) as file:
            found[name] = base64.b64encode(file.read(_MAX_STREAM_BYTES)).decode()
    return found
