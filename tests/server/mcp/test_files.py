"""Files of sessions, as tools and as resources."""

from __future__ import annotations

import base64

import pytest
from mcp import MCPError

from tests.server.mcp.mcp_client import (
    STDIO,
    call,
    call_refused,
    connect,
    run_async,
    run_code,
    text_of,
)
from tests.server.mcp.test_running import PNG


def test_files_are_written_listed_and_read() -> None:
    async def check() -> None:
        async with connect(STDIO) as client:
            await call(client, "write_file", path="data/ä b.csv", content="a,b\n1,2\n")
            shown = await run_code(client, "print(open('data/ä b.csv').read())")
            assert shown["stdout"] == "a,b\n1,2\n\n"
            listed = (await call(client, "list_files"))["files"]
            assert [each["path"] for each in listed] == ["data", "data/ä b.csv"]
            read = await client.call_tool("read_file", {"path": "data/ä b.csv"})
            assert text_of(read) == "a,b\n1,2\n"
            resource = (await client.read_resource(listed[1]["uri"])).contents[0]
            assert getattr(resource, "text", None) == "a,b\n1,2\n"
            uris = [each.uri for each in (await client.list_resources()).resources]
            assert uris == [listed[1]["uri"]]

    run_async(check())


def test_only_files_that_the_run_wrote_are_reported() -> None:
    async def check() -> None:
        async with connect(STDIO) as client:
            await run_code(client, "1")
            for number in range(20):
                for path in (f"file{number}", ".git/hooks/pre-commit", "folder/file"):
                    await call(client, "write_file", path=path, content=str(number))
                assert (await run_code(client, "1"))["files"] == []
            await call(client, "write_file", path="file0", content="x")
            changed = await run_code(client, "_ = open('file0', 'w').write('longer')")
            assert changed["files"] == ["file0"]

    run_async(check())


def test_a_path_through_a_file_is_refused_with_the_reason() -> None:
    async def check() -> None:
        async with connect(STDIO) as client:
            await call(client, "write_file", path="data.csv", content="x")
            refused = await call_refused(client, "write_file", path="data.csv/x", content="x")
            assert "'data.csv' is a file" in refused

    run_async(check())


def test_content_that_looks_like_json_is_written_as_it_is() -> None:
    async def check() -> None:
        async with connect(STDIO) as client:
            await call(client, "write_file", path="a.json", content='{"a": [1, 2]}')
            assert (await run_code(client, "print(open('a.json').read())"))["stdout"] == (
                '{"a": [1, 2]}\n'
            )

    run_async(check())


def test_pictures_are_read_as_pictures_and_other_bytes_as_base64() -> None:
    async def check() -> None:
        async with connect(STDIO) as client:
            await call(client, "write_file", path="a.png", content=PNG, encoding="base64")
            (picture,) = (await client.call_tool("read_file", {"path": "a.png"})).content
            assert picture.type == "image"
            assert base64.b64decode(picture.data) == base64.b64decode(PNG)

            await run_code(client, r"open('a.bin', 'wb').write(b'\0\xff')")
            read = await call(client, "read_file", path="a.bin")
            assert (read["encoding"], read["content"]) == ("base64", "AP8=")
            resource = (await client.read_resource("sandbox://default/a.bin")).contents[0]
            assert getattr(resource, "blob", None) == "AP8="

    run_async(check())


def test_a_long_file_is_read_in_parts_that_do_not_split_characters() -> None:
    async def check() -> None:
        async with connect(STDIO) as client:
            text = "é" * 1000
            await call(client, "write_file", path="long", content=text)
            found, offset = "", 0
            while offset is not None:
                part = await call(client, "read_file", path="long", offset=offset, max_bytes=333)
                assert part["encoding"] == "utf-8"
                found, offset = found + part["content"], part["next_offset"]
            assert found == text

    run_async(check())


def test_no_file_outside_the_session_is_reachable() -> None:
    async def check() -> None:
        async with connect(STDIO) as client:
            await run_code(client, "import os; os.symlink('/etc/passwd', 'link')")
            for path in ("../x", "/etc/passwd", "link", "a/../../x"):
                assert "root:" not in await call_refused(client, "read_file", path=path)
                if path != "link":
                    await call_refused(client, "write_file", path=path, content="x")
            for uri in (
                "sandbox://default/link",
                "sandbox://default/..%2Fx",
                "sandbox://default//etc/passwd",
                "sandbox://nobody/x",
                "file:///etc/passwd",
            ):
                with pytest.raises(MCPError):
                    await client.read_resource(uri)
            assert "base64" in await call_refused(
                client, "write_file", path="x", content="?", encoding="base64"
            )

    run_async(check())
