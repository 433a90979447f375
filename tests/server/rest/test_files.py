"""Files of a session."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from .requesting import run


def test_files_are_uploaded_listed_downloaded_and_deleted(api: httpx.Client, session: str) -> None:
    name, content = "folder/a b#ü?.csv", b"\x00\xff" * 1000
    quoted = "folder/a%20b%23%C3%BC%3F.csv"
    made = api.put(f"{session}/files/{quoted}", content=content)
    assert (made.status_code, made.json()["path"]) == (200, name)
    assert (made.json()["size_bytes"], made.json()["content_type"]) == (2000, "text/csv")
    read = run(api, session, f"print(len(open({name!r}, 'rb').read()))")
    assert read["stdout"] == "2000\n"
    top = api.get(f"{session}/files").json()["files"]
    assert [(each["path"], each["type"]) for each in top] == [("folder", "folder")]
    inner = api.get(f"{session}/files", params={"folder": "folder"}).json()["files"]
    everything = api.get(f"{session}/files", params={"recursive": "true"}).json()["files"]
    assert [each["path"] for each in inner] == [name]
    assert [each["path"] for each in everything] == ["folder", name]
    assert api.get(f"{session}/files/{quoted}").content == content
    assert api.delete(f"{session}/files/{quoted}").status_code == 204
    assert api.get(f"{session}/files/{quoted}").status_code == 404


def test_pages_are_downloaded_and_not_shown(api: httpx.Client, session: str) -> None:
    api.put(f"{session}/files/page.html", content=b"<script>")
    answer = api.get(f"{session}/files/page.html")
    assert answer.headers["content-disposition"] == "attachment"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["%2e%2e/x", "a/%2E%2E/%2E%2E/x", "/etc/passwd", "a%00b", ""])
def test_paths_outside_the_folder_are_refused(api: httpx.Client, session: str, path: str) -> None:
    for method in ("PUT", "GET", "DELETE"):
        request = httpx.Request(method, f"{api.base_url}{session.lstrip('/')}/files/{path}")
        request.headers.update(api.headers)
        answer = api.send(request)
        assert answer.status_code == 400, (method, answer.text)
        assert answer.json()["error"]["code"] == "InvalidFileName"


def test_links_of_the_session_are_not_followed(api: httpx.Client, session: str) -> None:
    run(api, session, "import os\nos.symlink('/etc/passwd', 'link')")
    assert api.get(f"{session}/files/link").status_code == 404


def test_files_over_the_limit_are_refused(api: httpx.Client, session: str) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(150):
            yield bytes(1 << 16)

    assert api.put(f"{session}/files/big", content=bytes(9 << 20)).status_code == 413
    assert api.put(f"{session}/files/big", content=chunks()).status_code == 413
    assert api.get(f"{session}/files").json() == {"files": []}


def test_files_of_an_unknown_session_are_not_found(api: httpx.Client) -> None:
    for method, path in (("GET", ""), ("PUT", "/a"), ("GET", "/a"), ("DELETE", "/a")):
        answer = api.request(method, f"/sessions/unknown/files{path}")
        assert answer.json()["error"]["code"] == "SessionNotFound"
