"""The pages of the console without a browser: what they show, do and keep from others."""

from __future__ import annotations

import html
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from cellblock.sandbox.cgroups import find_cgroups
from cellblock.server.owners import Quotas

from ..rest.requesting import FOREVER, parse_events, wait_for
from ..serving import OLD, Server, leaving_post, run_old, serving
from .visiting import SAME_ORIGIN, browsing, run, send, text_of, visiting

_NASTY = "<script>alert(1)</script>"


def _create(client: httpx.Client, name: str = "") -> str:
    return send(client, "/sessions", {"id": name})


def test_all_answers_have_a_strict_policy(visitor: httpx.Client) -> None:
    paths = ["/sign-in", "/playground", "/sessions", "/nothing", "/static/console.js"]
    for path in paths:
        answer = visitor.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        if "text/html" in answer.headers["content-type"]:
            assert answer.headers["cache-control"] == "no-store"
            assert not re.search(r"<script>|<style|\son\w+=|\sstyle=", answer.text)


def test_code_runs_in_a_session_and_the_page_shows_what_it_wrote(visitor: httpx.Client) -> None:
    path = _create(visitor)
    page = run(visitor, f"{path}/runs", f"x = 1\nprint({_NASTY!r})\n6 * 7")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;</pre>" in page
    assert _NASTY not in page
    assert "42" in page
    page = run(visitor, f"{path}/runs", "1 / 0")
    assert "ZeroDivisionError" in page
    assert "exit code 1" in page
    assert f'href="/console{path}?code_of=' in page


def test_the_playground_runs_fresh_processes_and_other_languages(visitor: httpx.Client) -> None:
    page = run(visitor, "/runs", "echo $((6 * 7))", place="fresh", language="sh")
    assert "42\n" in page
    assert "echo $((6 * 7))</textarea>" in page.replace("\r", "")


def test_languages_are_offered_whose_program_is_installed(visitor: httpx.Client) -> None:
    programs = {"python": "sh", "sh": "sh", "bash": "bash", "pwsh": "pwsh", "javascript": "node"}
    for path in ("/playground", f"{_create(visitor)}"):
        offered = re.findall(r"<option(?: selected)?>(\w+)</option>", visitor.get(path).text)
        assert offered == [name for name, program in programs.items() if shutil.which(program)]


def test_a_new_key_is_shown_examples_that_run(server: Server) -> None:
    with visiting(server, server.add_key("new")) as client:
        page = client.get("/playground").text
        titles = re.findall(r"<h3>(.*?)</h3>", page)
        codes = re.findall(r'name="code" value="(.*?)"', page, re.DOTALL)
        assert len(titles) == len(codes) == 3
        shown = [run(client, "/runs", html.unescape(code), place="new") for code in codes]
        assert "The warmest day was Thu.</pre>" in shown[0]
        assert "\n21.1</pre>" in shown[0]
        assert "<td>125</td>" in shown[1]
        assert "Write into the own folder: done\nWrite outside of it: [Errno" in shown[2]
        assert "Reach the internet: [Errno" in shown[2]
        assert "download>notes.txt</a>" in shown[2]
        assert "example" not in client.get("/playground").text
        assert "import statistics" in client.get("/playground?example=values").text


def test_completions_are_those_of_the_session(
    visitor: httpx.Client, stranger: httpx.Client
) -> None:
    path = _create(visitor)
    run(visitor, f"{path}/runs", "kept_value = {'k\u00e9y': 1}")

    def complete(code: str, client: httpx.Client = visitor) -> httpx.Response:
        fields = {"code": code, "cursor": str(len(code))}
        return client.post(f"{path}/complete", data=fields, headers=SAME_ORIGIN)

    assert complete("a = '\U0001f600'; kept_v").json() == {"start": 9, "matches": ["kept_value"]}
    assert complete("kept_v", stranger).status_code == 404
    running = send(visitor, f"{path}/runs", {"code": FOREVER})
    assert complete("kept_v").json() == {"start": 0, "matches": []}
    send(visitor, f"/runs/{running.rpartition('#run-')[2]}/cancel", {})


_COMPLETED = """import time
class Sleeps:
    def __dir__(self): time.sleep(100)
class Burns:
    def __dir__(self):
        end = time.process_time() + 0.3
        while time.process_time() < end: pass
        return ["burnt"]
sleeps, burns = Sleeps(), Burns()"""


@pytest.mark.skipif(not find_cgroups().cpu_time, reason="needs control groups")
def test_a_completion_has_the_limits_of_a_run(server: Server) -> None:
    key = server.add_key("completes", Quotas(cpu_seconds_a_day=0.3))
    with visiting(server, key) as visitor:
        path = _create(visitor)
        run(visitor, f"{path}/runs", _COMPLETED)

        def complete(code: str) -> httpx.Response:
            fields = {"code": code, "cursor": str(len(code))}
            return visitor.post(f"{path}/complete", data=fields, headers=SAME_ORIGIN)

        assert complete("sleeps.").json()["matches"] == []
        assert complete("burns.").json()["matches"] == ["burnt"]
        refused = complete("burns.")
        assert (refused.status_code, "CPU seconds" in text_of(refused)) == (429, True)


def test_modules_of_the_editor_import_addresses(visitor: httpx.Client) -> None:
    page = visitor.get("/playground").text
    (first,) = re.findall(r'<script type="module" src="/console(.*?)">', page)
    waiting, seen = [first], set[str]()
    while waiting:
        if (path := waiting.pop()) not in seen:
            seen.add(path)
            answer = visitor.get(path)
            assert answer.headers["content-type"].startswith("text/javascript"), path
            tag = {"if-none-match": answer.headers["etag"]}
            assert visitor.get(path, headers=tag).status_code == 304
            names = re.findall(
                r"^(?:import|export|\}) [^'\"]*from ['\"](.*?)['\"];$", answer.text, re.M
            )
            base = f"/console{path}"
            waiting += [urljoin(base, name).removeprefix("/console") for name in names]
    assert "/static/codemirror/@codemirror/view.js" in seen
    assert "/static/codemirror/@marijn/find-cluster-break.js" in seen


def test_the_playground_makes_a_session_or_uses_one(visitor: httpx.Client) -> None:
    path = _create(visitor, "play")
    run(visitor, f"{path}/runs", "kept = 41")
    assert "42" in run(visitor, "/runs", "kept + 1", place="session:play")
    target = send(visitor, "/runs", {"code": "1", "place": "new"})
    assert target.startswith("/sessions/session-")


def test_displays_are_shown_inert(visitor: httpx.Client) -> None:
    path = _create(visitor)
    page = run(
        visitor,
        f"{path}/runs",
        "from IPython.display import HTML, display\n"
        "display(HTML('<b>bold</b><script>alert(1)</script><img src=x onerror=alert(2)>'))",
    )
    assert '<div class="display"><b>bold</b>' in page
    assert "Part of this output is not shown" in page
    shown = page.partition('<div class="display">')[2].partition("</div>")[0]
    assert "script" not in shown
    assert "onerror" not in shown


def test_live_output_is_streamed_and_a_run_can_be_cancelled(
    server: Server, key: str, visitor: httpx.Client
) -> None:
    path = _create(visitor)
    target = send(visitor, f"{path}/runs", {"code": FOREVER})
    run_id = target.partition("#run-")[2]
    with visitor.stream("GET", f"/runs/{run_id}/events") as answer:
        next(answer.iter_lines())
    with server.client(key, "/v1") as api:  # who follows a run and leaves does not end it
        assert api.get(f"/runs/{run_id}").json()["status"] == "running"
    with visitor.stream("GET", f"/runs/{run_id}/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "content-security-policy" in answer.headers
        events = parse_events(answer.iter_lines())
        first = next(event for event in events if event.name == "parts")
        assert first.data["parts"][0]["text"].startswith("begun")
        send(visitor, f"/runs/{run_id}/cancel", {})
        last = [*events][-1]
    assert (last.name, last.data["is_last"], last.data["status"]) == ("state", True, "cancelled")
    after = visitor.get(f"/runs/{run_id}/events", headers={"Last-Event-ID": str(last.number)})
    assert after.status_code == 204


def test_the_last_event_is_marked_also_if_the_run_has_ended_before(visitor: httpx.Client) -> None:
    """The script of the console stops to read there."""
    path = _create(visitor)
    target = send(visitor, f"{path}/runs", {"code": "print('shown')"})
    wait_for(lambda: "exit code 0" in visitor.get(path).text)
    answer = visitor.get(f"/runs/{target.partition('#run-')[2]}/events")
    *before, last = parse_events(answer.text.splitlines())
    assert "shown\n" in answer.text.encode().decode("unicode_escape")
    assert last.data["is_last"]
    assert not any(event.data.get("is_last") for event in before)


def test_files_are_uploaded_listed_downloaded_and_deleted(visitor: httpx.Client) -> None:
    path = _create(visitor)
    name, content = f"{_NASTY.replace('/', '')}.html", b"<script>alert(1)</script>"
    foreign = {"Sec-Fetch-Site": "cross-site"}
    refused = visitor.post(f"{path}/files", files={"file": ("a", b"")}, headers=foreign)
    assert refused.status_code == 403
    answer = visitor.post(f"{path}/files", files={"file": (name, content)}, headers=SAME_ORIGIN)
    assert answer.headers["location"] == f"/console{path}#files"
    page = visitor.get(path).text
    assert name not in page
    found = re.search(r'href="/console(/sessions/[^"]*/files/[^"]*)"', page)
    assert found is not None
    got = visitor.get(found[1])
    assert got.content == content
    assert got.headers["content-disposition"].startswith("attachment")
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["content-type"] == "application/octet-stream"
    assert "default-src 'none'" in got.headers["content-security-policy"]
    send(visitor, f"{path}/delete-file", {"path": found[1].rpartition("/")[2]})
    assert "There is no file." in visitor.get(path).text


def test_checkpoints_are_a_tree_to_restore_and_fork_from(visitor: httpx.Client) -> None:
    path = _create(visitor)
    run(visitor, f"{path}/runs", "x = 1")
    for name in ("first", "second"):
        send(visitor, f"{path}/checkpoint", {"name": name})
        run(visitor, f"{path}/runs", "x += 1")
    asked = visitor.get(f"{path}/restore", params={"checkpoint": "first"})
    assert "What has changed since is lost" in text_of(asked)
    send(visitor, f"{path}/restore", {"checkpoint": "first"})
    assert "\n1</pre>" in run(visitor, f"{path}/runs", "x")
    send(visitor, f"{path}/checkpoint", {"name": "third"})
    fork = send(visitor, f"{path}/fork", {"checkpoint": "second"})
    assert "\n2</pre>" in run(visitor, f"{fork}/runs", "x")
    assert _tree(visitor.get(path).text) == [
        (1, "first"), (2, "second"), (3, f"fork {fork.rpartition('/')[2]}"), (2, "third, current"),
    ]  # fmt: skip
    send(visitor, f"{path}/drop", {"checkpoint": "first"})
    assert [depth for depth, _ in _tree(visitor.get(path).text)] == [1, 2, 1]


def _tree(page: str) -> list[tuple[int, str]]:
    """Return the depth and the name of each checkpoint and fork."""
    tree = page.partition('class="tree"')[2].partition("<form")[0]
    found, depth = list[tuple[int, str]](), 0
    for tag, name, badge, fork in re.findall(
        r'(</?ul>)|<span class="name">([^<]*)</span>( <span class="badge")?|>session ([^<]*)</a>',
        tree,
    ):
        depth += {"<ul>": 1, "</ul>": -1}.get(tag, 0)
        if name or fork:
            found.append((depth, f"fork {fork}" if fork else name + (", current" if badge else "")))
    return found


def test_sessions_are_filtered(visitor: httpx.Client) -> None:
    for name in ("filter-one", "filter-two"):
        _create(visitor, name)
    found = visitor.get("/sessions?text=FILTER").text
    assert found.index(">filter-two<") < found.index(">filter-one<")
    assert "2 sessions found" in found
    assert ">filter-one<" not in visitor.get("/sessions?text=filter-two&state=idle").text
    assert "There is no such session" in visitor.get("/sessions?text=filter&state=running").text


def test_sessions_can_be_restarted_and_ended(visitor: httpx.Client) -> None:
    path = _create(visitor, "short")
    run(visitor, f"{path}/runs", "x = 1")
    send(visitor, f"{path}/restart", {})
    assert "NameError" in run(visitor, f"{path}/runs", "x")
    assert send(visitor, f"{path}/end", {}) == "/sessions"
    assert visitor.get(path).status_code == 404


def test_sessions_and_runs_of_other_keys_are_not_found_and_their_forms_do_nothing(
    visitor: httpx.Client, stranger: httpx.Client
) -> None:
    session = _create(visitor, "own")
    files = {"file": ("a.txt", b"a")}
    visitor.post(f"{session}/files", files=files, headers=SAME_ORIGIN)
    for path in ("", "/state", "/restore", "/fork", "/end", "/files/a.txt"):
        assert visitor.get(f"{session}{path}").status_code == 200
        assert stranger.get(f"{session}{path}").status_code == 404
    assert "own" not in stranger.get("/sessions").text
    fields = {"code": "1", "path": "a", "checkpoint": "a"}
    for action in "runs files delete-file checkpoint restore drop fork restart end".split():
        answer = stranger.post(f"{session}/{action}", data=fields, headers=SAME_ORIGIN)
        assert answer.status_code == 404, action
        assert visitor.get(session).status_code == 200
    run_path = send(visitor, "/runs", {"code": FOREVER, "place": "fresh"}).partition("#")[0]
    assert stranger.get(run_path).status_code == 404
    assert stranger.get(f"{run_path}/events").status_code == 404
    assert stranger.post(f"{run_path}/cancel", headers=SAME_ORIGIN).status_code == 404
    send(visitor, f"{run_path}/cancel", {})


def test_bad_input_gets_a_page_that_names_the_field(visitor: httpx.Client) -> None:
    answer = visitor.post("/sessions", data={"id": "no spaces"}, headers=SAME_ORIGIN)
    assert answer.status_code == 400
    assert "The field 'id' is not valid" in text_of(answer)
    answer = visitor.post("/runs", data={"code": "1", "language": "x"}, headers=SAME_ORIGIN)
    assert "'x' does not run here" in text_of(answer)
    answer = visitor.post("/runs", data={"code": "1", "place": "x"}, headers=SAME_ORIGIN)
    assert answer.status_code == 400
    many = {f"field{number}": "" for number in range(100)}
    answer = visitor.post("/sessions", data=many, headers=SAME_ORIGIN)
    assert "too many fields" in text_of(answer)
    answer = visitor.post("/runs", data={"code": "x" * (2 << 20)}, headers=SAME_ORIGIN)
    assert answer.status_code == 413


def test_quotas_hold_in_the_console(server: Server) -> None:
    with visiting(server, server.add_key("console quota", quotas=Quotas(sessions=1))) as client:
        _create(client)
        answer = client.post("/sessions", data={}, headers=SAME_ORIGIN)
        assert answer.status_code == 429
        assert "already has 1 sessions" in text_of(answer)


def test_runs_of_other_doors_are_shown_with_their_output_and_code_if_it_is_kept(
    server: Server, key: str, visitor: httpx.Client, client: httpx.Client
) -> None:
    path = _create(visitor)
    with server.client(key, "/v1") as api:
        api.post(f"{path}/runs", json={"code": "print('from', 'the door')"})
    page = visitor.get(path).text
    assert "from the door" in page
    assert "code_of" in page
    path = _create(visitor, "azure")
    assert run_old(client, f"print('from', 'azure', {_NASTY!r})", "azure").status_code == 200
    page = visitor.get(path).text
    assert "from azure &lt;script&gt;" in page
    assert "exit code 0" in page
    assert "code_of" not in page


def test_runs_of_other_doors_are_shown_while_they_run(
    server: Server, key: str, visitor: httpx.Client
) -> None:
    path = _create(visitor)
    identifier = path.removeprefix("/sessions/")
    code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('went')"
    with ThreadPoolExecutor(1) as pool, server.client(key) as client:
        running = pool.submit(run_old, client, code, identifier)
        wait_for(lambda: list(visitor.get(f"{path}/runs").json().values()) == ["running"])
        page = visitor.get(path)
        assert "Its output is shown when it has ended" in text_of(page)
        assert "data-events" not in page.text
        assert "1 running or waiting" in _row_of(visitor, identifier)
        assert client.put(f"/v1{path}/files/go", content=b"").status_code == 200
        assert running.result().status_code == 200
    assert list(visitor.get(f"{path}/runs").json().values()) == ["ok"]
    assert "idle" in _row_of(visitor, identifier)
    assert "went" in visitor.get(path).text


def _row_of(visitor: httpx.Client, identifier: str) -> str:
    """Return the row of a session in the page of sessions."""
    return visitor.get("/sessions").text.partition(f">{identifier}</a>")[2].partition("</tr>")[0]


def test_a_run_whose_client_went_away_is_no_longer_shown_as_running(
    server: Server, key: str, visitor: httpx.Client
) -> None:
    path = _create(visitor)
    with server.client(key) as client:
        address = f"/code/execute?api-version={OLD}&identifier={path.removeprefix('/sessions/')}"
        properties = {
            "codeInputType": "inline", "executionType": "synchronous", "code": FOREVER
        }  # fmt: skip
        with leaving_post(server, client, address, {"properties": properties}):
            wait_for(lambda: list(visitor.get(f"{path}/runs").json().values()) == ["running"])
    wait_for(lambda: list(visitor.get(f"{path}/runs").json().values()) == ["cancelled"])
    assert "data-unfollowed" not in visitor.get(path).text


def test_a_server_without_console_has_no_pages(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-console") as server, browsing(server) as client:
        for path in ("", "/", "/sign-in", "/static/console.js"):
            assert client.get(path).status_code == 404
        assert client.post("/sign-in", data={"key": "x"}, headers=SAME_ORIGIN).status_code == 404
        with server.client(server.add_key("any"), "/v1") as api:
            assert api.get("/sessions").status_code == 200
