"""A server that exports its spans over HTTP, joined to the traces of its callers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cellblock import AzureContainerCodeExecutor, CodeBlock
from tests.server.serving import Server, serving
from tests.tracing.recorded import Recorded

# What `opentelemetry-instrument` does: it configures an SDK before the program starts.
CONFIGURE = """
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
"""
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Receiver:
    """A collector: keeps the spans that it gets."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        spans = self.spans = list[Any]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        spans.extend((scope.scope.name, span) for span in scope.spans)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def runs(self) -> list[Any]:
        """Return the spans of runs, in the order of their starts."""
        found = [span for _, span in self.spans if span.name == "cellblock.run"]
        return sorted(found, key=lambda span: span.start_time_unix_nano)


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """Yield a collector on a free port."""
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever)
    thread.start()
    yield receiver
    receiver.server.shutdown()
    thread.join()
    receiver.server.server_close()


@pytest.fixture(scope="module")
def server(
    receiver: Receiver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, str]]:
    """Yield a server that exports its spans, and a key."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "sitecustomize.py").write_text(CONFIGURE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        with serving(folder, is_forked=False) as server:
            yield server, server.add_key("caller")


def test_a_run_of_a_server_is_exported_in_the_trace_of_its_caller(
    receiver: Receiver, server: tuple[Server, str]
) -> None:
    running, key = server
    receiver.spans.clear()
    with running.client(key, "/v1") as client:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        session = client.post("/sessions", json={}, headers=headers).json()["id"]
        run = {"code": "print('MARKER')"}
        answer = client.post(f"/sessions/{session}/runs", json=run, headers=headers)
        assert answer.json()["result"]["exit_code"] == 0, answer.text
        client.post(f"/sessions/{session}/runs", json=run)
    joined, own = receiver.runs()
    assert (joined.trace_id.hex(), joined.parent_span_id.hex()) == (TRACE, PARENT)
    assert (own.trace_id.hex() != TRACE, own.parent_span_id) == (True, b"")
    assert {scope for scope, _ in receiver.spans} == {"cellblock"}
    assert "MARKER" not in str(receiver.spans)
    values = {each.key: each.value for each in joined.attributes}
    assert values["cellblock.outcome"].string_value == "ok"
    assert values["cellblock.session.id"].string_value


@pytest.mark.slow
def test_a_remote_executor_and_its_server_share_a_trace(
    receiver: Receiver, server: tuple[Server, str], recorded: Recorded
) -> None:
    running, key = server
    receiver.spans.clear()

    async def run() -> None:
        async with AzureContainerCodeExecutor(running.url, key) as executor:
            await executor.execute_code_blocks([CodeBlock("6 * 7", "python")])

    asyncio.run(run())
    here = recorded.one("cellblock.run").get_span_context()
    assert here is not None
    trace_id, span_id = here.trace_id.to_bytes(16, "big"), here.span_id.to_bytes(8, "big")
    there = [each for each in receiver.runs() if each.trace_id == trace_id]
    # The executor runs code of its own besides, which finds the files of the block.
    assert {each.parent_span_id for each in there} == {span_id}
