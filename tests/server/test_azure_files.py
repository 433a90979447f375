"""Files through the Azure door: names, tricks, limits, in both dialects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from .serving import NEW, OLD, run_old

_PARAMS = {"api-version": OLD, "identifier": "files"}
_NEW_PARAMS = {"api-version": NEW, "identifier": "files"}


def _upload(client: httpx.Client, name: str, data: bytes) -> httpx.Response:
    return client.post("/files/upload", params=_PARAMS, files={"file": (name, data)})


def _result(client: httpx.Client, code: str) -> Any:
    return run_old(client, code, "files").json()["properties"]["result"]


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ("a.txt", "a.txt"),
        ("/mnt/data/b.txt", "b.txt"),
        ("two words.txt", "two words.txt"),
        ("two%20coded.txt", "two coded.txt"),
        ("ünïcode-文.txt", "ünïcode-文.txt"),
        ("sub/c.txt", "sub/c.txt"),
        ("@$&=;,#%^().txt", "@$&=;,#%^().txt"),
    ],
)
def test_an_uploaded_file_is_in_mnt_data(client: httpx.Client, sent: str, name: str) -> None:
    answer = _upload(client, sent, b"content")
    properties = answer.json()["value"][0]["properties"]
    assert (properties["filename"], properties["size"]) == (name.rpartition("/")[2], 7)
    assert _result(client, f"open('/mnt/data/{name}').read()") == "content"
    assert client.get(f"/files/content/{_quoted(name)}", params=_PARAMS).content == b"content"
    assert _result(client, f"open('/mnt/data/{name}', 'a').write('more')") == 4


def _quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(name)


def test_multipart_under_the_json_content_type_is_accepted(client: httpx.Client) -> None:
    request = client.build_request("POST", "/x", files={"file": ("json.txt", b"content")})
    answer = client.post(
        "/files/upload",
        params=_PARAMS,
        content=request.read(),
        headers={"content-type": "application/json"},
    )
    assert answer.status_code == 200, answer.text
    assert _result(client, "open('json.txt').read()") == "content"


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/x", "a/../../x", "/mnt/data/../x", "/mnt/data", "x" * 300, "..%2Fx", "%00"],
)
def test_a_name_outside_of_the_folder_is_refused(client: httpx.Client, name: str) -> None:
    answer = _upload(client, name, b"content")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "InvalidFileName")


def test_links_out_of_the_folder_are_not_followed(client: httpx.Client) -> None:
    _result(
        client,
        "import os\nos.symlink('/etc/passwd', '/mnt/data/link')\n"
        "os.symlink('/etc', '/mnt/data/folder')\nos.mkfifo('/mnt/data/fifo')",
    )
    for name in ("link", "folder/passwd", "fifo"):
        answer = client.get(f"/files/content/{name}", params=_PARAMS)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "FileNotFound")
    assert _upload(client, "folder/x", b"content").status_code == 404
    _upload(client, "link", b"content")  # replaces the link itself
    assert client.get("/files/content/link", params=_PARAMS).content == b"content"
    assert "root:" in Path("/etc/passwd").read_text()


def test_files_are_listed_described_and_deleted_in_the_new_dialect(client: httpx.Client) -> None:
    answer = client.post(
        "/files", params={**_NEW_PARAMS, "path": "/new"}, files={"file": ("a.csv", b"1,2")}
    )
    assert answer.json() | {"lastModifiedAt": ""} == {
        "name": "a.csv",
        "type": "file",
        "contentType": "text/csv",
        "sizeInBytes": 3,
        "lastModifiedAt": "",
        "directory": "/new",
    }
    listed = client.get("/files", params={**_NEW_PARAMS, "recursive": "true"}).json()["value"]
    assert ("a.csv", "file") in [(each["name"], each["type"]) for each in listed]
    assert ("new", "directory") in [(each["name"], each["type"]) for each in listed]
    folder = {**_NEW_PARAMS, "path": "new"}
    assert client.get("/files/a.csv", params=folder).json()["sizeInBytes"] == 3
    assert client.get("/files/a.csv/content", params=folder).content == b"1,2"
    assert client.delete("/files/a.csv", params=folder).status_code == 204
    assert client.get("/files/a.csv", params=folder).status_code == 404


def test_a_large_file_comes_back_and_a_too_large_one_is_refused(client: httpx.Client) -> None:
    data = bytes(range(256)) * 20_000
    assert _upload(client, "large.bin", data).status_code == 200
    assert client.get("/files/content/large.bin", params=_PARAMS).content == data
    answer = _upload(client, "larger.bin", b"x" * 9_000_000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "PayloadTooLarge")
    assert client.get("/files/content/larger.bin", params=_PARAMS).status_code == 404


@pytest.mark.parametrize("body", [b"", b"no multipart", b"--b\r\n\r\n", b"--b\r\nbroken"])
def test_a_damaged_upload_is_refused(client: httpx.Client, body: bytes) -> None:
    for content_type in ("multipart/form-data; boundary=b", "application/json"):
        headers = {"content-type": content_type}
        answer = client.post("/files/upload", params=_PARAMS, content=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "InvalidRequest")
