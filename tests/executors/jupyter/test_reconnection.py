"""Kernels whose connection is lost: no block runs twice or waits for a lost reply."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock import CodeBlock, LocalJupyterServer, sync
from tests.executors.jupyter.kernels import run
from tests.tcp_proxy import TcpProxy

pytestmark = pytest.mark.kernel

RECONNECTED = (
    "The connection to the kernel was lost during the block and restored: output may be missing."
)
LOST = "\nLost: the connection to the kernel was lost, and with it the result of the block."


@pytest.fixture
def proxy(server: LocalJupyterServer) -> Iterator[TcpProxy]:
    with TcpProxy(server.connection_info) as proxy:
        yield proxy


@pytest.fixture
def python(proxy: TcpProxy) -> Iterator[sync.JupyterServerCodeExecutor]:
    with sync.JupyterServerCodeExecutor(proxy, timeout=20) as executor:
        yield executor


@pytest.mark.slow
def test_no_output_is_lost_when_the_connection_is_cut_repeatedly(
    python: sync.JupyterServerCodeExecutor, proxy: TcpProxy
) -> None:
    seen, cuts, ended = "", 0, ""
    code = (
        "import time\nfor number in range(12):\n"
        "    print(number, flush=True)\n    time.sleep(0.15)\nkept = 1"
    )
    for event in python.execute_stream([CodeBlock(code, "python")]):
        seen += getattr(event, "text", "")
        ended = getattr(event, "notice", ended)
        if cuts < 3 and seen.count("\n") > 3 * cuts:
            cuts += 1
            proxy.cut()
    assert (cuts, seen) == (3, "".join(f"{number}\n" for number in range(12)))
    assert ended == RECONNECTED
    assert run(python, "kept").output == "1\n"


def test_a_connection_lost_between_blocks_has_no_effect(
    python: sync.JupyterServerCodeExecutor, proxy: TcpProxy
) -> None:
    run(python, "quiet = 2")
    proxy.cut()
    result = run(python, "quiet")
    assert result.stdout == "2\n"
    assert run(python, "quiet").output == "2\n"


def test_a_lost_reply_is_reported_at_once_and_the_kernel_keeps_running(
    python: sync.JupyterServerCodeExecutor, proxy: TcpProxy, work: Path
) -> None:
    def lose() -> None:
        while b"execute_reply" not in proxy.dropped:
            time.sleep(0.02)
        proxy.drop_responses = False
        proxy.cut()

    proxy.drop_responses = True
    losing = threading.Thread(target=lose)
    losing.start()
    result = run(python, "open('done', 'w').close(); answer = 42; print('not seen')")
    losing.join()
    assert (result.exit_code, result.outcome, result.output) == (
        1,
        "error",
        f"{LOST}\n{RECONNECTED}",
    )
    assert run(python, "answer").output == "42\n"


def test_a_lost_request_is_not_sent_again(
    python: sync.JupyterServerCodeExecutor, proxy: TcpProxy, work: Path
) -> None:
    def lose() -> None:
        while not proxy.dropped:
            time.sleep(0.02)
        proxy.drop_requests = False
        proxy.cut()

    proxy.drop_requests = True
    losing = threading.Thread(target=lose)
    losing.start()
    result = run(python, "open('ran', 'a').write('x')")
    losing.join()
    assert (result.exit_code, result.output) == (1, f"{LOST}\n{RECONNECTED}")
    assert not (work / "ran").exists()
    assert run(python, "1").output == "1\n"


def test_a_block_waits_for_the_connection_to_be_restored(
    python: sync.JupyterServerCodeExecutor, proxy: TcpProxy
) -> None:
    proxy.close()
    opening = threading.Timer(0.3, proxy.open)
    opening.start()
    result = run(python, "21 * 2")
    opening.join()
    assert (result.exit_code, result.stdout) == (0, "42\n")


@pytest.mark.slow
def test_the_time_limit_applies_while_the_connection_is_lost(proxy: TcpProxy) -> None:
    with sync.JupyterServerCodeExecutor(proxy, timeout=1) as executor:
        events: list[Any] = []
        opening = threading.Timer(2, proxy.open)
        for event in executor.execute_stream(
            [CodeBlock("import time\nprint('x', flush=True)\ntime.sleep(30)", "python")]
        ):
            if getattr(event, "text", ""):
                proxy.close()
                opening.start()
            events.append(event)
        opening.join()
        assert (events[-1].exit_code, events[-1].outcome) == (124, "timeout")
        assert run(executor, "1").output.startswith("1\n")


def test_a_server_that_stays_unreachable_is_reported(
    proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cellblock.executors.jupyter.remote_kernel._RECONNECT_SECONDS", 1.0)
    with sync.JupyterServerCodeExecutor(proxy, timeout=30) as executor:
        last: Any = None
        for event in executor.execute_stream(
            [CodeBlock("import time\nprint('x', flush=True)\ntime.sleep(30)", "python")]
        ):
            if getattr(event, "text", ""):
                proxy.close()
            last = event
        proxy.open()
        assert (last.exit_code, last.outcome) == (137, "killed")
        assert "cannot be reached" in last.message
