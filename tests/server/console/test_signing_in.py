"""Signing in: a key becomes a cookie, which ends, and is worth nothing to other sites."""

from __future__ import annotations

import json

import httpx

from cellblock.server.console.sign_ins import SIGN_IN_SECONDS, SignIns

from ..conftest import Servers
from ..rest.requesting import wait_for
from ..serving import Server
from .visiting import SAME_ORIGIN, browsing, send, text_of, visiting


def test_pages_lead_to_the_form_before_signing_in(server: Server) -> None:
    pages = [
        "/",
        "/playground",
        "/sessions",
        "/sessions/a",
        "/runs/a",
        "/runs/a/events",
        "/nothing",
    ]
    with browsing(server) as client:
        answers = [client.get(path) for path in pages]
    found = {(answer.status_code, answer.headers["location"]) for answer in answers}
    assert found == {(303, "/console/sign-in")}


def test_a_key_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(
    server: Server, key: str
) -> None:
    with browsing(server) as client:
        answer = client.post("/sign-in", data={"key": key}, headers=SAME_ORIGIN)
        cookie = answer.headers["set-cookie"]
        assert client.get("/sessions").status_code == 200
    assert {"HttpOnly", "SameSite=strict", "Path=/console"} <= set(cookie.split("; "))
    assert key not in str(answer.headers) + answer.text


def test_a_wrong_key_is_refused_without_being_shown(server: Server) -> None:
    with browsing(server) as client:
        answer = client.post("/sign-in", data={"key": "cb_<wrong>"}, headers=SAME_ORIGIN)
    assert answer.status_code == 403
    assert "The API key is unknown" in answer.text
    assert "wrong" not in answer.text
    assert "set-cookie" not in answer.headers


def test_signing_out_ends_the_cookie_on_the_server(server: Server, key: str) -> None:
    with visiting(server, key) as client:
        old = dict(client.cookies)
        assert send(client, "/sign-out", {}) == "/sign-in"
        client.cookies.update(old)
        assert client.get("/sessions").status_code == 303


def test_a_revoked_key_is_signed_out(server: Server) -> None:
    with visiting(server, server.add_key("soon revoked")) as client:
        assert client.get("/sessions").status_code == 200
        server.keys.revoke("soon revoked")
        wait_for(lambda: client.get("/sessions").status_code == 303)


def test_sign_ins_expire_and_the_oldest_of_a_key_are_ended() -> None:
    now = [0.0]
    sign_ins = SignIns(lambda: now[0])
    tokens = [sign_ins.add("key", "digest") for _ in range(60)]
    other = sign_ins.add("other key", "digest")
    assert sign_ins.find(tokens[0]) is None
    assert sign_ins.find(tokens[-1]) is not None
    assert sign_ins.find(other) is not None
    now[0] = SIGN_IN_SECONDS
    assert sign_ins.find(other) is None


def test_forms_of_other_sites_change_nothing(visitor: httpx.Client) -> None:
    for headers in (
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "null"},
        {"Origin": "https://example.org"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://[", "Sec-Fetch-Site": "cross-site"},
    ):
        for path in ("/sessions", "/sign-out", "/runs"):
            answer = visitor.post(path, data={"id": "forged", "code": "1"}, headers=headers)
            assert answer.status_code == 403, headers
            assert "page of another site" in text_of(answer)
    page = visitor.get("/sessions")
    assert page.status_code == 200
    assert "forged" not in page.text


def test_browsers_that_send_only_an_origin_can_send_forms(
    server: Server, visitor: httpx.Client
) -> None:
    answer = visitor.post("/sessions", data={"id": "by-origin"}, headers={"Origin": server.url})
    assert answer.status_code == 303


def test_the_console_of_a_server_without_keys_says_so(servers: Servers) -> None:
    with browsing(servers("--no-auth")) as client:
        page = client.get("/playground")
        assert "This server has no keys" in page.text
        assert "/console/usage" not in page.text
        assert client.get("/usage").status_code == client.get("/log").status_code == 404
        assert client.get("/sign-in").headers["location"] == "/console/"
        assert client.get("/playground", headers={"Host": "example.org"}).status_code == 403
        assert client.post("/sessions", data={}).status_code == 403


def test_the_log_names_the_key_and_neither_its_secret_nor_code(server: Server, key: str) -> None:
    with visiting(server, key) as client:
        send(client, "/runs", {"code": "'secret code'", "place": "fresh"})
        client.get("/playground", headers={"x-request-id": "last-of-log"})
    lines = wait_for(lambda: [line for line in server.lines if "last-of-log" in line])
    last = json.loads(lines[0])
    assert last["operation"] == "console.show_playground"
    assert last["key"] in {info.id for info in server.keys.list_keys()}
    assert not [line for line in server.lines if key in line or "secret code" in line]
