"""Files of sessions, as tools and as resources."""

from __future__ import annotations

import base64

import pytest

from tests.server.mcp.mcp_client import Tools, text_of
from tests.server.mcp.test_running import PNG


def test_files_are_written_listed_and_read(tools: Tools) -> None:
    tools.data("write_file", path="data/ä b.csv", content="a,b\n1,2\n")
    shown = tools.run("print(open('data/ä b.csv').read())")
    assert shown["stdout"] == "a,b\n1,2\n\n"
    folder, file = tools.data("list_files")["files"]
    assert (folder["path"], file["path"]) == ("data", "data/ä b.csv")
    assert text_of(tools.call("read_file", path="data/ä b.csv")) == "a,b\n1,2\n"
    assert tools.read(file["uri"]).text == "a,b\n1,2\n"
    assert [uri for uri in tools.uris() if tools.session in uri] == [file["uri"]]


def test_only_files_that_the_run_wrote_are_reported(tools: Tools) -> None:
    tools.run("1")
    for number in range(20):
        for path in (f"file{number}", ".git/hooks/pre-commit", "folder/file"):
            tools.data("write_file", path=path, content=str(number))
        assert tools.run("1")["files"] == []
    tools.data("write_file", path="file0", content="x")
    assert tools.run("_ = open('file0', 'w').write('longer')")["files"] == ["file0"]


def test_a_path_through_a_file_is_refused_with_the_reason(tools: Tools) -> None:
    tools.data("write_file", path="data.csv", content="x")
    refused = tools.refusal("write_file", path="data.csv/x", content="x")
    assert "'data.csv' is a file" in refused


def test_content_that_looks_like_json_is_written_as_it_is(tools: Tools) -> None:
    tools.data("write_file", path="a.json", content='{"a": [1, 2]}')
    assert tools.run("print(open('a.json').read())")["stdout"] == '{"a": [1, 2]}\n'


def test_pictures_are_read_as_pictures_and_other_bytes_as_base64(tools: Tools) -> None:
    tools.data("write_file", path="a.png", content=PNG, encoding="base64")
    (picture,) = tools.call("read_file", path="a.png").content
    assert picture.type == "image"
    assert base64.b64decode(picture.data) == base64.b64decode(PNG)

    tools.run(r"open('a.bin', 'wb').write(b'\0\xff')")
    read = tools.data("read_file", path="a.bin")
    assert (read["encoding"], read["content"]) == ("base64", "AP8=")
    assert tools.read(f"sandbox://{tools.session}/a.bin").blob == "AP8="


def test_a_long_file_is_read_in_parts_that_do_not_split_characters(tools: Tools) -> None:
    text = "é" * 1000
    tools.data("write_file", path="long", content=text)
    found, offset = "", 0
    while offset is not None:
        part = tools.data("read_file", path="long", offset=offset, max_bytes=333)
        assert part["encoding"] == "utf-8"
        found, offset = found + part["content"], part["next_offset"]
    assert found == text


def test_no_file_outside_the_session_is_reachable(tools: Tools) -> None:
    from mcp import MCPError

    tools.run("import os; os.symlink('/etc/passwd', 'link')")
    for path in ("../x", "/etc/passwd", "link", "a/../../x"):
        assert "root:" not in tools.refusal("read_file", path=path)
        if path != "link":
            tools.refusal("write_file", path=path, content="x")
    for place in ("link", "..%2Fx", "/etc/passwd"):
        with pytest.raises(MCPError):
            tools.read(f"sandbox://{tools.session}/{place}")
    for uri in ("sandbox://nobody/x", "file:///etc/passwd"):
        with pytest.raises(MCPError):
            tools.read(uri)
    assert "base64" in tools.refusal("write_file", path="x", content="?", encoding="base64")
