"""The OpenAPI document: valid, complete, and true of the answers."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from ..serving import Server
from .requesting import run, start


@pytest.fixture(scope="module")
def document(server: Server) -> dict[str, Any]:
    """Return the document, which needs no key."""
    return httpx.get(f"{server.url}/openapi.json").json()


def test_the_document_is_valid(document: dict[str, Any]) -> None:
    pytest.importorskip("openapi_spec_validator").validate(document)


def test_the_document_names_its_server_operations_and_exact_content_types(
    server: Server, document: dict[str, Any]
) -> None:
    assert document["servers"] == [{"url": server.url}]
    names = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(names) == len(set(names)) > 20
    assert {"/health", "/ready", "/metrics"} <= set(document["paths"])
    # Generators of clients refuse ranges such as */*.
    assert "*/*" not in json.dumps(document)
    download = document["paths"]["/v1/sessions/{session_id}/files/{path}"]["get"]
    assert set(download["responses"]["200"]["content"]) == {"application/octet-stream"}


def test_each_path_of_the_document_is_served(
    server: Server, key: str, document: dict[str, Any]
) -> None:
    with server.client(key) as client:
        for path, methods in document["paths"].items():
            for method in methods:
                where = path.replace("{", "").replace("}", "")
                answer = client.request(method, where)
                described = methods[method]["responses"]
                assert str(answer.status_code) in described, (method, path, answer.text)
                assert answer.status_code != 405
                if answer.status_code >= 400:
                    assert answer.json()["error"]["code"] != "NotFound", path


def test_answers_have_the_fields_of_the_document(
    api: httpx.Client, session: str, document: dict[str, Any]
) -> None:
    schemas = document["components"]["schemas"]
    result = run(api, session, "1")
    assert set(result) == set(schemas["RunResult"]["properties"])
    path = start(api, session, "1")
    assert set(api.get(path).json()) == set(schemas["RunInfo"]["properties"])
    assert set(api.get(session).json()) == set(schemas["SessionInfo"]["properties"])
