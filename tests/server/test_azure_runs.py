"""Runs through the Azure door: values, failures, limits, commands, in both dialects."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from .rest.requesting import wait_for
from .serving import NEW, OLD, Server, leaving_post, run_old


def _run(client: httpx.Client, code: str, identifier: str = "runs") -> dict[str, Any]:
    answer = run_old(client, code, identifier)
    assert answer.status_code == 200, answer.text
    return answer.json()["properties"]


def _create(client: httpx.Client, identifier: str = "runs", **body: Any) -> httpx.Response:
    return client.post(
        "/executions", params={"api-version": NEW, "identifier": identifier}, json=body
    )


def test_the_last_expression_is_the_result(client: httpx.Client) -> None:
    values: dict[str, Any] = {
        "40 + 2": 42,
        "1.5": 1.5,
        "True": True,
        "'nan'": "nan",
        "float('nan')": None,
        "None": "",
        "x = 1": "",
        "[1, 'a']": "[1, 'a']",
        "'1'": "1",
        '"it\'s"': "it's",
        "{'a': 1}": "{'a': 1}",
        "10 ** 40": 10**40,
        r"'\ud800'": r"'\ud800'",
        "10 ** 4000": 10**4000,
    }
    done = {code: _run(client, code) for code in values}
    assert {code: each["result"] for code, each in done.items()} == values
    assert type(done["True"]["result"]) is bool
    assert {(each["status"], each["stdout"]) for each in done.values()} == {("Success", "")}


def test_printed_text_is_apart_from_the_result_and_kept_by_a_failure(client: httpx.Client) -> None:
    done = _run(client, "import sys\nprint('out')\nprint('err', file=sys.stderr)\n'value'")
    assert (done["stdout"], done["stderr"], done["result"]) == ("out\n", "err\n", "value")
    done = _run(client, "print('before')\n1/0")
    assert (done["status"], done["stdout"]) == ("Failure", "before\n")
    assert "ZeroDivisionError" in done["stderr"]


def test_a_picture_is_the_result(client: httpx.Client) -> None:
    png = (
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
        "gg=="
    )
    done = _run(
        client,
        f"import base64\nfrom IPython.display import Image\nImage(base64.b64decode('{png}'))",
    )
    assert done["result"] == {"type": "image", "format": "png", "base64_data": png}
    assert done["stdout"] == ""
    pictures = "import glob; glob.glob('/mnt/data/**/*.png', recursive=True)"
    assert _run(client, pictures)["result"] == "[]"


def test_the_current_folder_is_mnt_data_and_has_no_other_name(client: httpx.Client) -> None:
    code = "import os; (os.getcwd(), os.path.exists('/workspace'), os.path.realpath('.'))"
    assert _run(client, code)["result"] == "('/mnt/data', False, '/mnt/data')"
    assert _create(client, shellCommand="pwd").json()["result"]["stdout"] == "/mnt/data\n"
    code = (
        "# filename: failing.py\nimport inspect; print(inspect.currentframe().f_code.co_filename)"
    )
    assert "/workspace" not in _run(client, code)["stdout"]


def test_packages_are_listed_one_a_line_and_commands_run_for_autogen(client: httpx.Client) -> None:
    code = "import pkg_resources; [d.project_name for d in pkg_resources.working_set]"
    assert len(_run(client, code)["result"].split(",\n ")) > 10
    assert _run(client, "! echo hi")["stdout"] == "hi\n"


def test_the_time_limit_of_a_run_is_data(client: httpx.Client) -> None:
    body = {"properties": {"code": "print('a')\nwhile True: pass", "timeoutInSeconds": 1}}
    params = {"api-version": OLD, "identifier": "runs"}
    done = client.post("/code/execute", params=params, json=body).json()["properties"]
    assert (done["status"], done["stdout"]) == ("Failure", "a\n")
    assert "Timeout" in done["stderr"]
    assert _run(client, "40 + 2")["result"] == 42


def test_the_new_dialect_has_resources(client: httpx.Client) -> None:
    code = base64.b64encode(b"print('hi')\n6 * 7").decode()
    answer = _create(client, codeInputType="InlineBase64", executionType="Synchronous", code=code)
    done = answer.json()
    assert done["status"] == "Succeeded"
    assert done["result"] | {"executionTimeInMilliseconds": 0} == {
        "stdout": "hi\n",
        "stderr": "",
        "executionResult": 42,
        "executionTimeInMilliseconds": 0,
    }
    assert answer.headers["operation-id"] == done["id"]
    params = {"api-version": NEW, "identifier": "runs"}
    assert client.get(f"/executions/{done['id']}", params=params).json() == done
    assert httpx.URL(answer.headers["operation-location"]).path.endswith(f"executions/{done['id']}")


def test_an_asynchronous_run_is_found_later(client: httpx.Client) -> None:
    answer = _create(client, code="input_value = 5\ninput_value + 1", executionType="Asynchronous")
    assert answer.status_code == 202
    params = {"api-version": NEW, "identifier": "runs"}
    run = answer.json()
    while run["status"] in ("NotStarted", "Running"):
        run = client.get(f"/executions/{run['id']}", params=params).json()
    assert (run["status"], run["result"]["executionResult"]) == ("Succeeded", 6)


def test_a_shell_command_answers_with_its_exit_code(client: httpx.Client) -> None:
    done = _create(client, shellCommand="cat; exit 3", stdin="it's in").json()
    assert (done["status"], done["result"]["stdout"]) == ("3", "it's in")
    done = _create(client, execCommandAndArgs=["echo", "a  b", "$HOME"]).json()
    assert (done["status"], done["result"]["stdout"]) == ("0", "a  b $HOME\n")


def test_sessions_are_described_listed_and_ended(client: httpx.Client) -> None:
    _run(client, "kept = 1", "resource")
    params = {"api-version": NEW, "identifier": "resource"}
    described = client.get("/session", params=params).json()
    assert described["identifier"] == "resource"
    listed = client.get("/listSessions", params={"api-version": NEW}).json()["sessions"]
    assert "resource" in [each["identifier"] for each in listed]
    assert client.delete("/session", params=params).status_code == 204
    assert client.get("/session", params=params).status_code == 404
    assert _run(client, "kept", "resource")["status"] == "Failure"


def test_metadata_names_python_and_packages(client: httpx.Client) -> None:
    found = client.get("/metadata", params={"api-version": NEW}).json()
    assert found["runtimes"][0]["name"] == "Python"
    assert any(each.lower().startswith("ipython==") for each in found["preInstalledPackages"])


def test_a_malformed_request_gets_the_error_of_the_service(client: httpx.Client) -> None:
    good = {"api-version": OLD, "identifier": "runs"}
    for params, body in (
        ({"identifier": "runs"}, b"{}"),
        ({"api-version": OLD}, b"{}"),
        ({"api-version": OLD, "identifier": "abc"}, b"{}"),
        ({"api-version": OLD, "identifier": "with space"}, b"{}"),
        ({"api-version": "new", "identifier": "runs"}, b"{}"),
        (good, b""),
        (good, b"\xff{"),
        (good, b"[]"),
        (good, b'{"properties": {"code": 1}}'),
        (good, b'{"properties": {}}'),
        (good, b'{"properties": {"code": "1", "timeoutInSeconds": -1}}'),
        (good, b'{"properties": {"code": "1", "codeInputType": "file"}}'),
    ):
        answer = client.post("/code/execute", params=params, content=body)
        assert answer.status_code == 400, (params, body)
        assert answer.json()["error"]["code"] == answer.headers["x-ms-error-code"]
        assert answer.headers["x-ms-request-id"]


def test_a_large_body_is_refused(client: httpx.Client) -> None:
    answer = run_old(client, "x" * 2_000_000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "PayloadTooLarge")

    def chunks() -> Any:
        for _ in range(40):
            yield b"x" * 50_000

    params = {"api-version": OLD, "identifier": "runs"}
    answer = client.post("/code/execute", params=params, content=chunks())
    assert answer.status_code == 413


def test_unknown_paths_and_methods_have_the_same_errors(client: httpx.Client) -> None:
    assert client.get("/nothing").json()["error"]["code"] == "NotFound"
    assert client.put("/code/execute").json()["error"]["code"] == "MethodNotAllowed"


def _send(client: httpx.Client, version: str, operation_id: str, code: str) -> httpx.Response:
    body = {"code": code, "codeInputType": "Inline", "executionType": "Synchronous"}
    return client.post(
        "/code/execute" if version == OLD else "/executions",
        params={"api-version": version, "identifier": "runs"},
        headers={"operation-id": operation_id},
        json={"properties": body} if version == OLD else body,
    )


@pytest.mark.parametrize("version", [OLD, NEW])
def test_the_client_can_choose_the_id_of_a_run(client: httpx.Client, version: str) -> None:
    operation_id = f"mine.{version}"
    code = "times = globals().get('times', 0) + 1\ntimes"
    _run(client, "times = 0")
    first, again = (_send(client, version, operation_id, code) for _ in range(2))
    assert first.status_code == again.status_code == 200
    assert first.headers["operation-id"] == again.headers["operation-id"] == operation_id
    assert first.json() == again.json()
    assert _run(client, "times")["result"] == 1
    assert client.get(
        f"/executions/{operation_id}", params={"api-version": NEW, "identifier": "runs"}
    ).json()["status"] == "Succeeded"  # fmt: skip


def test_a_run_with_a_chosen_id_goes_on_without_its_client(
    server: Server, client: httpx.Client
) -> None:
    code = (
        "import os, time\nopen('begun', 'w').close()\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n'done'"
    )
    path = f"/code/execute?api-version={OLD}&identifier=lost"
    body = {"properties": {"code": code}}
    sent = {"operation-id": "lost-run"}
    query = {"api-version": OLD, "identifier": "lost"}
    with leaving_post(server, client, path, body, sent):
        wait_for(lambda: "begun" in client.get("/files", params=query).text)
    client.post("/files/upload", params=query, files={"file": ("go", b"")})
    again = client.post("/code/execute", params=query, headers=sent, json=body)
    assert again.json()["properties"]["result"] == "done"


def test_the_id_of_another_run_is_refused(client: httpx.Client) -> None:
    assert _send(client, NEW, "twice", "1").status_code == 200
    refused = _send(client, NEW, "twice", "2")
    assert refused.status_code == 422
    assert "operation-id" in refused.json()["error"]["message"]
    assert _send(client, NEW, "no spaces", "1").status_code == 400
