"""POST /run_code: compile and run a program in a fresh process and an empty folder."""

from __future__ import annotations

import base64
import contextlib
import io
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from ....executors.command_line.program import ProgramRun
from ....executors.command_line.toolchains import TOOLCHAINS, Toolchain
from ....limits import MIB
from ....results import CodeResult
from ...http.bodies import read_json
from ...http.disconnect import run_while_connected
from ...http.endpoints import Endpoints, json_error
from ...http.services import Services
from ...owners import Owner
from ...refusals import FileMissing, InvalidRequest, TooManyRuns
from ...sessions.files import split_name
from ...sessions.fresh_runs import Execute, fresh_programs
from ...sessions.run_queue import CpuPlace, CpuPlaces
from ...sessions.session_files import SessionFiles, read_all
from .attempts import Attempts
from .messages import RunCodeRequest, answer, command_result, limits_reached

_STDIN = ".stdin"
_MAX_BYTES = 64 * MIB  # of the output, or of a file, in an answer
_CHECK_SECONDS = 10.0
_LONG_SECONDS = 2.0  # after which a program leaves its CPU to the next one
_ATTEMPTS = 3  # of clients such as verl


def sandbox_fusion_routes(services: Services) -> list[BaseRoute]:
    """Return the routes of the door, which accept any prefix."""
    make = Endpoints(services, "sandbox_fusion", json_error).suffix_route
    return [make("POST", "/run_code", ProgramRuns(services).run_code)]


class ProgramRuns:
    """Run programs, if possible one for each CPU, so that none is late because of the others."""

    def __init__(self, services: Services) -> None:
        self._store = services.store
        self._free_places = CpuPlaces(self._store.factory.program_places)
        self._attempts = Attempts[Response]()
        self._installed = set[tuple[str, str]]()  # programs that a key's sandbox is known to have

    async def run_code(self, request: Request, owner: Owner) -> Response:
        """Answer POST /run_code."""
        body = await read_json(request, RunCodeRequest, self._store.settings.max_body_bytes)
        toolchain = TOOLCHAINS.get(body.language)
        if toolchain is None:
            known = ", ".join(TOOLCHAINS)
            raise InvalidRequest(f"The language {body.language!r} is unknown. Use one of: {known}.")
        run = partial(self._run, owner, body, toolchain, body.decoded_files())
        work = self._attempts.result((owner.id, body.key), run, body.answer_seconds)
        return await run_while_connected(request, work)

    async def _run(
        self, owner: Owner, body: RunCodeRequest, toolchain: Toolchain, given: dict[str, bytes]
    ) -> Response:
        self._check_queue(owner, body)
        place = CpuPlace(self._free_places, _LONG_SECONDS)
        async with fresh_programs(self._store, owner, body.language, place) as (session, execute):
            await _write_files(session.files, body, toolchain, given)
            if not await self._is_installed(owner, toolchain.program, execute):
                missing = f"{toolchain.program} is not installed, which {body.language} needs."
                return JSONResponse(answer("SandboxError", missing))
            ended = await _compile_and_run(execute, body, toolchain)
            place.leave()
            return JSONResponse(await _answer(session.files, ended, body.fetch_files))

    def _check_queue(self, owner: Owner, body: RunCodeRequest) -> None:
        """Raise `TooManyRuns` if the queue of the key is too long for all attempts of a client."""
        queue = self._store.queue
        each = min(queue.mean_seconds, _LONG_SECONDS) / self._store.factory.program_places
        waiting = queue.admitted_of(owner)
        if (expected := each * waiting) > _ATTEMPTS * body.answer_seconds:
            raise TooManyRuns(
                f"{waiting} programs of this key wait, for about {expected:.0f} s. Send the "
                "request again later.",
                round(expected - body.answer_seconds),
            )

    async def _is_installed(self, owner: Owner, name: str, execute: Execute) -> bool:
        if (owner.id, name) not in self._installed:
            check = ProgramRun(argv=["sh", "-c", f"command -v {name}"])
            if (await execute(check, _CHECK_SECONDS)).exit_code != 0:
                return False
            self._installed.add((owner.id, name))
        return True


async def _compile_and_run(
    execute: Execute, body: RunCodeRequest, toolchain: Toolchain
) -> tuple[CodeResult | None, CodeResult | None]:
    """Return the results of the compiler and of the program, of those that were run."""
    compiled, code = None, (toolchain.file, body.code)
    if toolchain.compile:
        compiler = ProgramRun(argv=toolchain.compile.split(), code_file=code)
        compiled = await execute(compiler, body.compile_timeout)
        if compiled.exit_code != 0:
            return compiled, None
    program = replace(
        toolchain.run_program(body.memory_bytes),
        stdin=_STDIN if body.stdin else "",
        output_bytes=_MAX_BYTES,
        code_file=code if compiled is None else None,
    )
    return compiled, await execute(program, body.run_timeout)


async def _answer(
    files: SessionFiles, ended: tuple[CodeResult | None, CodeResult | None], names: list[str]
) -> dict[str, Any]:
    compiler, program = ended
    compiled = compiler and command_result(compiler, compiler.stdout, compiler.stderr)
    if program is None:
        return answer("Failed", compiled=compiled)
    ran = command_result(program, program.stdout, program.stderr)
    fetched, notes = dict[str, str](), limits_reached(program)
    for name in names:
        content = await _read(files, name)
        if content is not None and len(content) > _MAX_BYTES:
            notes.append(f"{name} is larger than {_MAX_BYTES} bytes, so it is not in the answer.")
        elif content is not None:
            fetched[name] = base64.b64encode(content).decode()
    status = "Success" if program.exit_code == 0 else "Failed"
    return answer(status, " ".join(notes), compiled=compiled, ran=ran, files=fetched)


async def _write_files(
    files: SessionFiles, body: RunCodeRequest, toolchain: Toolchain, given: dict[str, bytes]
) -> None:
    """Write all files but that of the code, which is written when it runs."""
    stdin = {_STDIN: body.stdin.encode(errors="replace")} if body.stdin else {}
    for name, content in {**given, **stdin}.items():
        if split_name(name) != (toolchain.file,):
            await files.write(name, io.BytesIO(content))


async def _read(files: SessionFiles, name: str) -> bytes | None:
    """Return the head of a file; None if it does not exist, as when the program has removed it."""
    with contextlib.suppress(FileMissing):
        return await read_all(await files.open(name), _MAX_BYTES + 1)
    return None
