"""What the executor does when the service is busy, fails, or answers nonsense."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from cellblock import AzureContainerCodeExecutor, BackendError, CodeBlock, CodeResult, ServiceError
from cellblock.executors.remote import retries
from cellblock.executors.remote.access_token import AccessToken
from cellblock.executors.remote.remote_session import RemoteSession, Waits
from cellblock.executors.remote.session_client import SessionClient
from cellblock.functions.module import FunctionModule
from cellblock.server.http.serving.tls import self_signed
from tests.executors.remote.pool import NEVER, Fault, Pool, error_body, running_pool
from tests.suite.tiers import exhaustive

RUN = "code/execute"


def execute(pool: Pool, *faults: Fault, code: str = "print('hi')") -> CodeResult:
    """Start an executor, add `faults`, and run a block."""

    async def main() -> CodeResult:
        async with AzureContainerCodeExecutor(pool.url, "token") as executor:
            pool.seen.clear()
            pool.faults.extend(faults)
            return await executor.execute_code_blocks([CodeBlock(code, "python")])

    return asyncio.run(main())


def test_a_busy_service_is_asked_again_after_the_time_it_names(pool: Pool) -> None:
    started = time.monotonic()
    result = execute(pool, Fault(RUN, 429, headers={"Retry-After": "1"}))
    assert result.output == "hi\n"
    assert len(pool.paths(RUN)) == 2
    assert time.monotonic() - started >= 1


def test_a_service_that_asks_for_a_long_wait_is_not_waited_for(pool: Pool) -> None:
    with pytest.raises(ServiceError, match="raise the limits of the pool") as caught:
        execute(pool, Fault(RUN, 429, headers={"Retry-After": "3600"}))
    assert caught.value.status == 429


@pytest.mark.parametrize("status", exhaustive([500, 0, 502, 503], keep=2))
async def test_a_run_that_may_have_happened_is_not_repeated(
    executor: AzureContainerCodeExecutor, pool: Pool, status: int
) -> None:
    code = "counter = globals().get('counter', 0) + 1\nprint(counter)"
    async with executor:
        pool.faults.append(Fault(RUN, status, after=True))
        with pytest.raises(ServiceError, match="sending code block to endpoint"):
            await executor.execute_code_blocks([CodeBlock(code, "python")])
        result = await executor.execute_code_blocks([CodeBlock(code, "python")])
        assert result.output == "2\n"


def test_what_is_safe_to_repeat_is_repeated(pool: Pool) -> None:
    for status in (500, 503, 0):
        result = execute(pool, Fault("files", status), code="open('made', 'w').close()")
        assert (status, result.files, len(pool.paths("files"))) == (status, ["made"], 2)


def test_errors_quote_the_service_with_its_code_and_request_id(pool: Pool) -> None:
    body = error_body("SessionPoolBroken", "The pool is   out of order")
    fault = Fault(RUN, 500, body=body, headers={"x-ms-request-id": "request-7"})
    with pytest.raises(ConnectionError, match="SessionPoolBroken, request ID request-7") as caught:
        execute(pool, fault)
    assert isinstance(caught.value, ServiceError)
    assert "The pool is out of order." in str(caught.value)
    facts = caught.value.status, caught.value.code, caught.value.request_id
    assert facts == (500, "SessionPoolBroken", "request-7")


def test_nonsense_is_an_error_and_never_output(pool: Pool) -> None:
    for body in (
        b"",
        b"<html>a proxy</html>",
        b"[]",
        b"null",
        b'{"properties": 3}',
        b'{"properties": {}}',
        b'{"properties": {"status": "Maybe"}}',
        b"[" * 100_000,
    ):
        with pytest.raises(ServiceError, match="does not answer like a session pool"):
            execute(pool, Fault(RUN, 200, body=body))


def test_answers_of_the_service_are_read(pool: Pool) -> None:
    answers: dict[bytes, tuple[int, str]] = {
        b'"status": "Success", "result": null': (0, ""),
        b'"status": "Success", "stdout": null, "result": {"a": [1]}': (0, '{"a": [1]}\n'),
        b'"status": "Success", "result": 1.5': (0, "1.5\n"),
        b'"status": "Success", "result": true': (0, "True\n"),
        b'"status": "Failure", "stderr": "SystemExit: 3"': (3, "SystemExit: 3"),
        b'"status": "Failure", "stderr": "SystemExit: 0\\n"': (0, "SystemExit: 0\n"),
        b'"status": "Failure", "stderr": "\\u001b[31mred\\u0000\\ud800"': (1, "red\ufffd\ufffd"),
    }
    for properties, expected in answers.items():
        result = execute(pool, Fault(RUN, 200, body=b'{"properties": {%s}}' % properties))
        assert (properties, result.exit_code, result.output) == (properties, *expected)


def test_an_unreachable_service_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "MAX_ATTEMPTS", 2)  # five take ten seconds

    async def main(url: str) -> None:
        await AzureContainerCodeExecutor(url, "token").start()

    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/pool"
        with pytest.raises(BackendError, match=url):
            asyncio.run(main(url))


def test_a_certificate_that_is_not_trusted_ends_the_first_request(tmp_path: Path) -> None:
    with running_pool(self_signed(tmp_path, "127.0.0.1")) as pool:

        async def main() -> None:
            with pytest.raises(ServiceError, match="SSL_CERT_FILE"):
                await AzureContainerCodeExecutor(pool.url, "token").start()
            assert pool.seen == []

        asyncio.run(main())


def open_session(
    pool: Pool, identifier: str, functions: FunctionModule, waits: Waits
) -> RemoteSession:
    """Return a session with other waits than those of executors."""

    def make_client(identifier: str) -> SessionClient:
        return SessionClient(pool.url, identifier, AccessToken("token"), None)

    return RemoteSession(make_client, identifier, functions, waits)


async def test_a_service_that_ignores_the_time_limit_gets_a_new_session(pool: Pool) -> None:
    waits = Waits(answer=0.2, settle=0.2)
    session = open_session(pool, "first-session", FunctionModule(), waits)
    await session.prepare()
    pool.faults.append(Fault(RUN, NEVER, times=2))
    run = await session.run("1", "1", None, 0.1)
    assert (run.end, run.execution) == ("timeout", None)
    assert "its output is lost" in run.notice
    assert "replaced by a new one: its variables and files are gone" in run.notice
    assert [seen.query["identifier"] for seen in pool.seen if seen.method == "DELETE"] == [
        "first-session"
    ]
    run = await session.run("print(5)", "print(5)", None, 5)
    assert run.execution is not None
    assert run.execution.stdout == "5\n"
    await session.close(delete=True)


async def test_an_expired_session_is_prepared_again(pool: Pool) -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    session = open_session(pool, "expiring-session", FunctionModule([add]), Waits(check=0))
    code = "from functions import add\nimport os\nprint(add(1, 2), os.getcwd())"
    run = await session.run(code, code, None, 5)
    assert run.notice == ""
    await session.client.delete_session()  # as the service does by itself
    run = await session.run(code, code, None, 5)
    assert run.notice.startswith("The session had expired before the block")
    assert run.execution is not None
    assert run.execution.stdout == "3 /mnt/data\n"
    await session.close(delete=True)


@dataclass
class Token:
    """What `get_token` of a credential returns."""

    token: str
    expires_on: float


class Credential:
    """A credential whose tokens are valid for `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.scopes = seconds, list[str]()

    def get_token(self, *scopes: str) -> Token:
        self.scopes += scopes
        return Token(f"token-{len(self.scopes)}", time.time() + self.seconds)


class AsyncCredential(Credential):
    async def get_token(self, *scopes: str) -> Token:  # type: ignore[override]
        return super().get_token(*scopes)


@pytest.mark.parametrize("kind", [Credential, AsyncCredential])
def test_a_token_is_used_until_shortly_before_it_expires(
    pool: Pool, kind: type[Credential]
) -> None:
    async def main(credential: Credential) -> None:
        async with AzureContainerCodeExecutor(pool.url, credential) as executor:
            await executor.execute_code_blocks([CodeBlock("1", "python")])

    lasting, expiring = kind(3600), kind(120)
    asyncio.run(main(lasting))
    assert lasting.scopes == ["https://dynamicsessions.io/.default"]
    assert {seen.authorization for seen in pool.seen} == {"Bearer token-1"}
    pool.seen.clear()
    asyncio.run(main(expiring))
    assert len({seen.authorization for seen in pool.seen}) == len(pool.seen)


def test_a_refused_token_is_replaced_once(pool: Pool) -> None:
    async def main(credential: Credential | str) -> CodeResult:
        async with AzureContainerCodeExecutor(pool.url, credential) as executor:
            pool.refused_tokens.add("token-1")
            return await executor.execute_code_blocks([CodeBlock("print('hi')", "python")])

    assert asyncio.run(main(Credential(3600))).output == "hi\n"
    pool.refused_tokens.add("fixed")
    with pytest.raises(ServiceError, match="Check the credential") as caught:
        asyncio.run(main("fixed"))
    assert caught.value.status == 401
    assert "fixed" not in str(caught.value)


async def test_a_credential_that_fails_is_named(pool: Pool) -> None:
    class Broken:
        def get_token(self, *scopes: str) -> Token:
            raise RuntimeError("no login")

    with pytest.raises(ServiceError, match="Broken returned no token for .*: no login"):
        await AzureContainerCodeExecutor(pool.url, Broken()).start()
