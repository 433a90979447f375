"""What `cellblock chat` says about a service that does not answer, and when it asks again."""

from __future__ import annotations

import pytest

from tests.cli.chat.model_service import ModelService, model_service
from tests.cli.chat.test_terminal import PROMPT, chat
from tests.cli.cli_process import run_command
from tests.models.http_service import Reply, json_reply

pytestmark = pytest.mark.usefixtures("sandbox")


def rate_limit(message: str = "Rate limit reached.", **headers: str) -> Reply:
    return json_reply({"error": {"message": message}}, 429, **headers)


def ask(service: ModelService) -> tuple[int, str]:
    """Return the exit code and the notes of the command."""
    arguments = ("--base-url", service.url, "--model", "local", "--approve", "never")
    done = run_command("chat", *arguments, "a task")
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("reply", "wait"),
    [
        (rate_limit("Please try again in 20ms."), "0.02 s"),
        (rate_limit("Rate limit", retry_after="0.1"), "0.1 s"),
        (rate_limit("Please retry after 1 seconds."), "1 s"),
        (rate_limit(), "0.5 s"),
    ],
)
def test_a_rate_limit_is_named_and_waited_for(reply: Reply, wait: str) -> None:
    with model_service(reply, "Hello.") as service:
        code, notes = ask(service)
        assert (code, service.request_count) == (0, 2)
        assert f"the service has reached its rate limit: asking again in {wait}" in notes


def test_a_stated_wait_is_waited_for_again_and_again() -> None:
    with model_service(*[rate_limit("Try again in 10ms.")] * 5, "Hello.") as service:
        assert ask(service)[0] == 0
        assert service.request_count == 6


def test_a_wait_that_is_too_long_is_for_the_person_to_decide() -> None:
    with model_service(rate_limit("Try again in 6m0s.")) as service:
        code, notes = ask(service)
        assert (code, service.request_count) == (3, 1)
        assert "Try again in 6m0s. Wait, then ask again." in notes


def test_a_quota_that_is_used_up_is_not_waited_for() -> None:
    with model_service(rate_limit("You exceeded your current quota.")) as service:
        assert (ask(service)[0], service.request_count) == (3, 1)


def test_ctrl_c_ends_the_wait() -> None:
    with chat(rate_limit(retry_after="100"), arguments=("first",)) as (terminal, service):
        terminal.wait_for("asking again in 100 s; Ctrl-C stops")
        terminal.type_keys("\x03")
        terminal.wait_for("stopped")
        terminal.wait_for(PROMPT)
        assert service.request_count == 1


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (Reply(body=b"<html><head><title>502 Bad Gateway</title></head>", status=502), 502),
        (Reply(body=b"<html>", status=502), 502),
        (Reply(body=b"", status=502), 502),
    ],
)
def test_the_page_of_a_proxy_is_one_line(reply: Reply, status: int) -> None:
    with model_service(reply) as service:
        code, notes = ask(service)
        assert (code, service.request_count) == (3, 3)
        assert f"the service answered with status {status}: asking again in 1 s" in notes
        assert notes.splitlines()[-1].endswith("Bad Gateway.")
        assert "<" not in notes


@pytest.mark.parametrize(
    ("reply", "advice"),
    [
        (json_reply({"error": {"message": "No such model."}}, 404), "Check --model and --base-url"),
        (json_reply({"error": {"message": "What?"}}, 400), "status 400: What?\n"),
        (
            Reply(body=b"<p>Hi", content_type="text/html"),
            "sent a web page. Check --base-url and the network.",
        ),
        (json_reply({"detail": "Not yours"}, 403), "Not yours. Check what the API key may do."),
    ],
)
def test_advice_names_options_of_the_command(reply: Reply, advice: str) -> None:
    with model_service(reply) as service:
        code, notes = ask(service)
        assert code == 3
        assert advice in notes
