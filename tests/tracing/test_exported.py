"""A server that exports its spans over HTTP, joined to the traces of its callers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.server.serving import serving

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


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Yield a collector on a free port."""
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever)
    thread.start()
    yield receiver
    receiver.server.shutdown()
    thread.join()
    receiver.server.server_close()


def test_a_run_of_a_server_is_exported_in_the_trace_of_its_caller(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(CONFIGURE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    with serving(tmp_path, is_forked=False) as server:
        key = server.add_key("caller")
        with server.client(key, "/v1") as client:
            headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
            session = client.post("/sessions", json={}, headers=headers).json()["id"]
            run = {"code": "print('MARKER')"}
            answer = client.post(f"/sessions/{session}/runs", json=run, headers=headers)
            assert answer.json()["result"]["exit_code"] == 0, answer.text
            client.post(f"/sessions/{session}/runs", json=run)
    runs = [span for _, span in receiver.spans if span.name == "cellblock.run"]
    joined, own = sorted(runs, key=lambda span: span.start_time_unix_nano)
    assert (joined.trace_id.hex(), joined.parent_span_id.hex()) == (TRACE, PARENT)
    assert (own.trace_id.hex() != TRACE, own.parent_span_id) == (True, b"")
    assert {scope for scope, _ in receiver.spans} == {"cellblock"}
    assert "MARKER" not in str(receiver.spans)
    values = {each.key: each.value for each in joined.attributes}
    assert values["cellblock.outcome"].string_value == "ok"
    assert values["cellblock.session.id"].string_value
