"""The pages of keys: for administrators alone; a new key is shown once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from ..rest.requesting import wait_for
from ..serving import Server
from .visiting import SAME_ORIGIN, send, text_of, visiting


@pytest.fixture(scope="module")
def admin_key(server: Server) -> str:
    """Return the key of an administrator."""
    return server.keys.add("the administrator", is_admin=True)[1]


@pytest.fixture
def admin(server: Server, admin_key: str) -> Iterator[httpx.Client]:
    """Yield a client that is signed in as an administrator."""
    with visiting(server, admin_key) as client:
        yield client


def _add(client: httpx.Client, name: str, **fields: str) -> str:
    """Create a key with the form. Return the key."""
    answer = client.post("/keys", data={"name": name, **fields}, headers=SAME_ORIGIN)
    assert answer.status_code == 200, text_of(answer)
    assert answer.headers["cache-control"] == "no-store"
    found = re.search(r'value="(cb_[^"]+)"', answer.text)
    assert found is not None
    return found[1]


def _id_of(server: Server, name: str) -> str:
    return next(key.id for key in server.keys.list_keys() if key.name == name)


@pytest.mark.usefixtures("admin_key")
def test_other_keys_see_no_page_of_keys(server: Server, visitor: httpx.Client) -> None:
    own = _id_of(server, "the administrator")
    answers = [
        visitor.get("/keys"),
        visitor.post("/keys", data={"name": "made"}, headers=SAME_ORIGIN),
        visitor.get(f"/keys/{own}"),
        visitor.post(f"/keys/{own}", data={"name": "made"}, headers=SAME_ORIGIN),
        visitor.get(f"/keys/{own}/revoke"),
        visitor.post(f"/keys/{own}/revoke", headers=SAME_ORIGIN),
    ]
    assert [answer.status_code for answer in answers] == [403] * 6
    assert "cellblock keys add NAME --admin" in text_of(answers[0])
    assert "/console/keys" not in visitor.get("/playground").text
    assert not _has(server, "made")


def _has(server: Server, name: str) -> bool:
    return any(key.name == name for key in server.keys.list_keys())


def test_a_new_key_is_shown_once_and_works(server: Server, admin: httpx.Client) -> None:
    fields = {"days": "1.5", "sessions": "2", "cpu_seconds": "10", "disk_mib": "64"}
    key = _add(admin, "<i>made</i>", **fields)
    page = admin.get("/keys").text
    assert "&lt;i&gt;made&lt;/i&gt;" in page
    assert "2 sessions, 10 CPU seconds a day, 64.0 MiB on disk" in page
    assert key not in page
    info = next(each for each in server.keys.list_keys() if each.name == "<i>made</i>")
    assert info.expires_at == info.created_at + 129_600
    assert not info.is_admin
    with server.client(key, "/v1") as api:
        assert api.get("/sessions").status_code == 200
    admin.get("/keys", headers={"x-request-id": "after-the-key"})
    wait_for(lambda: [line for line in server.lines if "after-the-key" in line])
    assert not [line for line in server.lines if key in line]


def test_an_administrator_can_make_another(server: Server, admin: httpx.Client) -> None:
    with visiting(server, _add(admin, "second administrator", admin="1")) as second:
        assert "administrator" in second.get("/keys").text


def test_a_key_is_edited(server: Server, admin: httpx.Client) -> None:
    key = _add(admin, "to edit", days="1", sessions="2", cpu_seconds="0.5", disk_mib="0.0001")
    before = next(each for each in server.keys.list_keys() if each.name == "to edit")
    path = f"/keys/{before.id}"
    form = admin.get(path).text
    fields = dict(re.findall(r'<input id="(\w+)" name="\w+"[^>]* value="([^"]*)"', form))
    fields |= dict(re.findall(r'<input id="(\w+)" name="\w+" value="([^"]*)"', form))
    assert send(admin, path, fields) == "/keys"
    assert before == next(each for each in server.keys.list_keys() if each.id == before.id)
    changes = {"name": "edited", "sessions": "", "running": "7", "admin": "1"}
    send(admin, path, {**fields, **changes})
    info = next(each for each in server.keys.list_keys() if each.id == before.id)
    quotas = replace(before.quotas, sessions=None, running=7)
    assert info == replace(before, name="edited", quotas=quotas, is_admin=True)
    with visiting(server, key) as client:
        assert "Key: edited" in client.get("/keys").text
        assert client.post(path, data={"name": "x"}, headers=SAME_ORIGIN).status_code == 400
    send(admin, path, {**fields, "expires_at": "2020-01-31T12:00:00"})
    assert next(each for each in server.keys.list_keys() if each.id == info.id).state == "expired"
    for bad in ({"name": "the administrator"}, {"expires_at": "x"}, {"running": "0"}):
        answer = admin.post(path, data={**fields, **bad}, headers=SAME_ORIGIN)
        assert answer.status_code == 400
    assert "3 records found" in text_of(admin.get("/log?action=key.change&text=edit"))
    server.keys.revoke(info.id)
    assert admin.post(path, data=fields, headers=SAME_ORIGIN).status_code == 400


def test_administrators_cannot_end_their_own_right(server: Server, admin: httpx.Client) -> None:
    path = f"/keys/{_id_of(server, 'the administrator')}"
    for ending in ({}, {"admin": "1", "expires_at": "2020-01-31T12:00:00"}):
        fields = {"name": "the administrator", **ending}
        answer = admin.post(path, data=fields, headers=SAME_ORIGIN)
        assert (answer.status_code, "your own key" in text_of(answer)) == (400, True), ending
    later = {"name": "the administrator", "admin": "1", "expires_at": "2100-01-31T12:00:00"}
    assert send(admin, path, later) == "/keys"


def test_a_key_is_revoked_after_a_question(server: Server, admin: httpx.Client) -> None:
    key = _add(admin, "to revoke")
    path = f"/keys/{_id_of(server, 'to revoke')}/revoke"
    assert "refused within one second" in text_of(admin.get(path))
    assert send(admin, path, {}) == "/keys"
    with server.client(key, "/v1") as api:
        wait_for(lambda: api.get("/sessions").status_code == 401)
    assert admin.get("/keys/unknown/revoke").status_code == 404


def _begins_with_a_run(log: str) -> str:
    """Return a page of the log if its newest line is a run rather than a new key, else ""."""
    return log if -1 < log.find('"Action">run<') < log.find('"Action">key.add<') else ""


def test_an_administrator_sees_what_all_keys_have_done(
    server: Server, admin: httpx.Client, visitor: httpx.Client
) -> None:
    with server.client(_add(admin, "worker"), "/v1") as api:
        api.post("/runs", json={"code": "1"})
    wait_for(lambda: "worker" in admin.get("/usage").text)
    log = wait_for(lambda: _begins_with_a_run(admin.get("/log").text))
    assert ">console<" in log
    assert "worker" not in visitor.get("/usage").text + visitor.get("/log").text


def test_numbers_that_are_not_valid_and_names_in_use_are_refused(admin: httpx.Client) -> None:
    numbers = {"days": ["0", "nan"], "sessions": ["1.5"], "running": ["x"], "disk_mib": ["1e99"]}
    for field, values in numbers.items():
        for value in values:
            data = {"name": "bad", field: value}
            answer = admin.post("/keys", data=data, headers=SAME_ORIGIN)
            assert answer.status_code == 400
            assert repr(field) in text_of(answer)
    answer = admin.post("/keys", data={"name": "the administrator"}, headers=SAME_ORIGIN)
    assert "There is a key named" in text_of(answer)
