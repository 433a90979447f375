"""POST /run_code: compile and run a program in a fresh process and an empty folder."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from functools import partial
from typing import Any, BinaryIO

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from ....limits import MIB
from ...http.bodies import read_json
from ...http.disconnect import run_while_connected
from ...http.endpoints import Endpoints, json_error
from ...http.services import Services
from ...owners import Owner
from ...refusals import FileMissing, InvalidRequest
from ...sessions.executors import Program
from ...sessions.files import SessionFiles
from ...sessions.store import Execute
from .languages import TOOLCHAINS, Toolchain
from .messages import RunCodeRequest, answer, command_result

# In files, output of any size stays complete.
_STDIN, _STDOUT, _STDERR = _STREAMS = ".streams/stdin", ".streams/stdout", ".streams/stderr"
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
        self._installed = set[tuple[str, str]]()  # programs that a key's sandbox is known to have

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
            if not await self._is_installed(owner, toolchain.program, execute):
                missing = f"{toolchain.program} is not installed, which {body.language} needs."
                return answer("SandboxError", missing)
            return await _judge(session.files, execute, body, toolchain)

    async def _is_installed(self, owner: Owner, name: str, execute: Execute) -> bool:
        if (owner.id, name) not in self._installed:
            check = Program(argv=["sh", "-c", f"command -v {name}"])
            if (await execute(check, _CHECK_SECONDS)).exit_code != 0:
                return False
            self._installed.add((owner.id, name))
        return True


async def _judge(
    files: SessionFiles, execute: Execute, body: RunCodeRequest, toolchain: Toolchain
) -> dict[str, Any]:
    compiled = None
    if toolchain.compile:
        compiler = Program(argv=toolchain.compile.split())
        result = await execute(compiler, body.compile_timeout)
        compiled = command_result(result, result.stdout, result.stderr)
        if result.exit_code != 0:
            return answer("Failed", compiled=compiled)
    program = toolchain.run_program(_STREAMS, body.memory_bytes)
    result = await execute(program, body.run_timeout)
    stdout, stderr, fetched = await asyncio.to_thread(_read_files, files, body.fetch_files)
    ran = command_result(result, stdout, stderr + result.stderr)
    status = "Success" if result.exit_code == 0 else "Failed"
    return answer(status, compiled=compiled, ran=ran, files=fetched)


def _write_files(
    files: SessionFiles, body: RunCodeRequest, toolchain: Toolchain, given: dict[str, bytes]
) -> None:
    for name, content in {
        **given,
        toolchain.file: body.code.encode(errors="replace"),
        _STDIN: (body.stdin or "").encode(errors="replace"),
    }.items():
        files.write(name, partial(_write, content))


def _write(content: bytes, file: BinaryIO) -> None:
    file.write(content)


def _read_files(files: SessionFiles, names: list[str]) -> tuple[str, str, dict[str, str]]:
    return _read_text(files, _STDOUT), _read_text(files, _STDERR), _fetch(files, names)


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
