"""Files through the Azure door: names, tricks, limits, in both dialects."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from .serving import NEW, OLD, Server, run_old

_PARAMS = {"api-version": OLD, "identifier": "files"}
_NEW_PARAMS = {"api-version": NEW, "identifier": "files"}


def _upload(client: httpx.Client, name: str, data: bytes) -> httpx.Response:
    return client.post("/files/upload", params=_PARAMS, files={"file": (name, data)})


def _result(client: httpx.Client, code: str) -> Any:
    return run_old(client, code, "files").json()["properties"]["result"]


def test_an_uploaded_file_is_in_mnt_data(client: httpx.Client) -> None:
    names = {
        "a.txt": "a.txt",
        "/mnt/data/b.txt": "b.txt",
        "two words.txt": "two words.txt",
        "A%41.txt": "A%41.txt",
        "100%25.txt": "100%25.txt",
        '"quoted"\\.txt': '"quoted"\\.txt',
        "ünïcode-文.txt": "ünïcode-文.txt",
        "sub/c.txt": "sub/c.txt",
        "@$&=;,#%^().txt": "@$&=;,#%^().txt",
    }
    for sent, name in names.items():
        properties = _upload(client, sent, b"content").json()["value"][0]["properties"]
        assert (properties["filename"], properties["size"]) == (name, 7)
        assert client.get(f"/files/content/{quote(name)}", params=_PARAMS).content == b"content"
    paths = [f"/mnt/data/{name}" for name in names.values()]
    code = f"{{(open(path).read(), open(path, 'a').write('more')) for path in {paths!r}}}"
    assert _result(client, code) == "{('content', 4)}"


_NAMES = ["two words.txt", "A%41.txt", "100%25.txt", "ü+€.txt", "in/x.txt", 'a"b.txt', "%"]


@pytest.mark.parametrize("is_quoting", [True, False])
def test_a_name_that_aiohttp_sends_is_kept(
    server: Server, key: str, client: httpx.Client, is_quoting: bool
) -> None:
    import aiohttp

    async def upload(session: aiohttp.ClientSession, name: str) -> str:
        form = aiohttp.FormData(quote_fields=is_quoting)
        form.add_field("file", b"content", filename=name)
        url, headers = f"{server.url}/files/upload", {"Authorization": f"Bearer {key}"}
        async with session.post(url, params=_PARAMS, headers=headers, data=form) as answer:
            return (await answer.json())["value"][0]["properties"]["filename"]

    async def upload_all(names: list[str]) -> list[str]:
        async with aiohttp.ClientSession() as session:
            return [await upload(session, name) for name in names]

    # Not quoted, this one cannot be told from a quoted name.
    names = [name for name in _NAMES if is_quoting or name != "100%25.txt"]
    assert asyncio.run(upload_all(names)) == names
    for name in names:
        assert client.get(f"/files/content/{quote(name)}", params=_PARAMS).content == b"content"


def test_a_name_that_requests_sends_is_kept(server: Server, key: str) -> None:
    import requests

    found = list[str]()
    for name in _NAMES:
        answer = requests.post(
            f"{server.url}/files/upload",
            params=_PARAMS,
            headers={"Authorization": f"Bearer {key}"},
            files={"file": (name, b"content")},
            timeout=60,
        )
        found.append(answer.json()["value"][0]["properties"]["filename"])
    assert found == _NAMES


def test_the_exact_name_of_rfc_5987_counts(client: httpx.Client) -> None:
    disposition = (
        "form-data; name=file; filename=\"=?utf-8?B?w7w=?=\"; filename*=utf-8''a%2541%C3%BC.txt"
    )
    body = f"--b\r\nContent-Disposition: {disposition}\r\n\r\ncontent\r\n--b--\r\n"
    headers = {"content-type": "multipart/form-data; boundary=b"}
    answer = client.post("/files/upload", params=_PARAMS, content=body, headers=headers)
    assert answer.json()["value"][0]["properties"]["filename"] == "a%41ü.txt"


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


def test_a_name_outside_of_the_folder_is_refused(client: httpx.Client) -> None:
    names = ["../x", "/etc/x", "a/../../x", "/mnt/data/../x", "/mnt/data", "x" * 300]
    answers = [_upload(client, name, b"content") for name in names]
    client.headers["User-Agent"] = "Python/3.11 aiohttp/3.9"  # only it encodes such signs
    answers += [_upload(client, name, b"content") for name in ("..%2Fx", "%00")]
    found = [(each.status_code, each.json()["error"]["code"]) for each in answers]
    assert found == [(400, "InvalidFileName")] * 8


def test_the_old_list_has_the_files_in_folders(client: httpx.Client) -> None:
    params = {**_PARAMS, "identifier": "folders"}
    for name in ("top.txt", "in/deep/z.txt"):
        assert client.post("/files/upload", params=params, files={"file": (name, b"1")}).is_success
    listed = client.get("/files", params=params).json()["value"]
    assert [each["properties"]["filename"] for each in listed] == ["in/deep/z.txt", "top.txt"]


def test_links_out_of_the_folder_are_not_followed(client: httpx.Client) -> None:
    _result(
        client,
        "import os\nos.symlink('/etc/passwd', '/mnt/data/link')\n"
        "os.symlink('/etc', '/mnt/data/folder')\nos.mkfifo('/mnt/data/fifo')",
    )
    for name in ("link", "folder/passwd", "fifo"):
        answer = client.get(f"/files/content/{name}", params=_PARAMS)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "FileNotFound")
    assert _upload(client, "folder/x", b"content").status_code == 400
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


def test_a_damaged_upload_is_refused(client: httpx.Client) -> None:
    for body in (b"", b"no multipart", b"--b\r\n\r\n", b"--b\r\nbroken"):
        for content_type in ("multipart/form-data; boundary=b", "application/json"):
            headers = {"content-type": content_type}
            answer = client.post("/files/upload", params=_PARAMS, content=body, headers=headers)
            assert answer.status_code == 400, body
            assert answer.json()["error"]["code"] == "InvalidRequest"
