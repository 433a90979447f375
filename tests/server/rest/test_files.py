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


def test_a_download_has_the_name_and_time_of_the_file(api: httpx.Client, session: str) -> None:
    run(
        api,
        session,
        "import os\nopen('é \"1\".csv', 'w').close()\nos.utime('é \"1\".csv', (0, 60))",
    )
    answer = api.get(f"{session}/files/%C3%A9%20%221%22.csv")
    expected = "attachment; filename*=UTF-8''%C3%A9%20%221%22.csv"
    assert answer.headers["content-disposition"] == expected
    assert answer.headers["last-modified"] == "Thu, 01 Jan 1970 00:01:00 GMT"
    api.put(f"{session}/files/page.html", content=b"<script>")
    answer = api.get(f"{session}/files/page.html")  # is not shown as a page
    assert answer.headers["content-disposition"] == 'attachment; filename="page.html"'
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_range_of_a_file_is_downloaded(api: httpx.Client, session: str) -> None:
    path = f"{session}/files/digits"
    api.put(path, content=b"0123456789")
    whole = api.get(path)
    assert (whole.status_code, whole.headers["accept-ranges"]) == (200, "bytes")
    for given, content, place in (
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-1", b"9", "bytes 9-9/10"),
        ("bytes=8-99", b"89", "bytes 8-9/10"),
    ):
        part = api.get(path, headers={"Range": given, "If-Range": whole.headers["etag"]})
        assert (part.status_code, part.content) == (206, content)
        assert part.headers["content-range"] == place
    for given in ("bytes=4-2", "bytes=0-1,3-4", "lines=1-2", "bytes=-"):
        assert api.get(path, headers={"Range": given}).content == b"0123456789"
    changed = api.get(path, headers={"Range": "bytes=2-4", "If-Range": '"another"'})
    assert (changed.status_code, changed.content) == (200, b"0123456789")
    refused = api.get(path, headers={"Range": "bytes=10-"})
    assert (refused.status_code, refused.headers["content-range"]) == (416, "bytes */10")
    assert refused.json()["error"]["code"] == "RangeNotSatisfiable"


def test_every_name_that_code_uses_can_be_requested(api: httpx.Client, session: str) -> None:
    for name, url_path, shown in (
        (b"n\nl", "n%0Al", "n\nl"),
        (b"end\n", "end%0A", "end\n"),
        (b"b\xffc", "b%FFc", "b\ufffdc"),
        ("b\ufffdc".encode(), "b%EF%BF%BDc", "b\ufffdc"),
    ):
        run(api, session, f"_ = open({name!r}, 'w').write('by code')")
        (entry,) = api.get(f"{session}/files").json()["files"]
        assert (entry["path"], entry["url_path"]) == (shown, url_path)
        assert api.get(f"{session}/files/{url_path}").text == "by code"
        made = api.put(f"{session}/files/{url_path}", content=b"by client").json()
        assert (made["path"], made["url_path"]) == (shown, url_path)
        assert run(api, session, f"print(open({name!r}).read())")["stdout"] == "by client\n"
        assert api.delete(f"{session}/files/{url_path}").status_code == 204
        assert api.get(f"{session}/files").json() == {"files": []}


def test_folders_are_no_files(api: httpx.Client, session: str) -> None:
    api.put(f"{session}/files/d1/inner", content=b"")
    api.put(f"{session}/files/file", content=b"")
    for answer, status, message in (
        (api.put(f"{session}/files/d1", content=b""), 400, "'d1' is a folder"),
        (
            api.put(f"{session}/files/file/x", content=b""),
            400,
            "'file' is a file or link, not a folder",
        ),
        (api.get(f"{session}/files", params={"folder": "file"}), 400, "'file' is not a folder"),
        (api.get(f"{session}/files/d1"), 404, "it is a folder"),
        (api.get(f"{session}/files", params={"folder": "none"}), 404, "'none'"),
    ):
        assert answer.status_code == status, answer.text
        assert message in answer.json()["error"]["message"]


def test_a_folder_is_deleted_with_what_is_in_it(api: httpx.Client, session: str) -> None:
    run(
        api,
        session,
        "import os\nos.makedirs('kept')\nos.makedirs('d/e/f')\nopen('kept/x', 'w').close()\n"
        "open('d/e/x', 'w').close()\nos.symlink('../kept', 'd/link')",
    )
    assert api.delete(f"{session}/files/d").status_code == 204
    left = api.get(f"{session}/files", params={"recursive": "true"}).json()["files"]
    assert [each["path"] for each in left] == ["kept", "kept/x"]


@pytest.mark.depends_on_user
def test_a_folder_of_any_depth_and_mode_is_deleted(api: httpx.Client, session: str) -> None:
    code = (
        "import os\nos.mkdir('kept')\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')\n"
        "os.chdir('/mnt/data')\nos.chmod('d', 0)"
    )
    run(api, session, code)
    assert api.delete(f"{session}/files/d").status_code == 204
    left = api.get(f"{session}/files").json()["files"]
    assert [each["path"] for each in left] == ["kept"]


def test_paths_and_links_outside_the_folder_are_refused(api: httpx.Client, session: str) -> None:
    for path in ("%2e%2e/x", "a/%2E%2E/%2E%2E/x", "/etc/passwd", "a%00b", ""):
        for method in ("PUT", "GET", "DELETE"):
            request = httpx.Request(method, f"{api.base_url}{session.lstrip('/')}/files/{path}")
            request.headers.update(api.headers)
            answer = api.send(request)
            assert answer.status_code == 400, (method, answer.text)
            assert answer.json()["error"]["code"] == "InvalidFileName"
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
