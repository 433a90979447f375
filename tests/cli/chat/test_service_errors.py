"""What `cellblock chat` says about a service that does not answer, and when it asks again."""

from __future__ import annotations

import pytest

from tests.cli.chat.model_service import ask, model_service
from tests.cli.chat.test_terminal import PROMPT, chat
from tests.models.http_service import Reply, json_reply
from tests.suite.tiers import exhaustive

pytestmark = pytest.mark.usefixtures("sandbox")


def rate_limit(message: str = "Rate limit reached.", **headers: str) -> Reply:
    return json_reply({"error": {"message": message}}, 429, **headers)


@pytest.mark.parametrize(
    ("reply", "wait"),
    exhaustive(
        [
            (rate_limit("Rate limit", retry_after="0.1"), "0.1 s"),
            (rate_limit("Please try again in 20ms."), "0.02 s"),
            (rate_limit("Please retry after 1 seconds."), "1 s"),
            (rate_limit(), "0.5 s"),
        ],
        keep=2,
    ),
)
def test_a_rate_limit_is_named_and_waited_for(reply: Reply, wait: str) -> None:
    with model_service(reply, "Hello.") as service:
        done = ask(service, "a task")
        assert (done.returncode, service.request_count) == (0, 2)
        told = f"the service has reached its rate limit: asking again in {wait}"
        assert told in done.stderr


def test_a_stated_wait_is_waited_for_again_and_again() -> None:
    with model_service(*[rate_limit("Try again in 10ms.")] * 5, "Hello.") as service:
        assert (ask(service, "a task").returncode, service.request_count) == (0, 6)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Try again in 6m0s.", "Try again in 6m0s. Wait, then ask again."),
        ("You exceeded your current quota.", ""),
    ],
)
def test_a_long_wait_and_a_quota_are_for_the_person(message: str, told: str) -> None:
    with model_service(rate_limit(message)) as service:
        done = ask(service, "a task")
        assert (done.returncode, service.request_count) == (3, 1)
        assert told in done.stderr


def test_ctrl_c_ends_the_wait() -> None:
    with chat(rate_limit(retry_after="100"), arguments=("first",)) as (terminal, service):
        terminal.wait_for("asking again in 100 s; Ctrl-C stops")
        terminal.type_keys("\x03")
        terminal.wait_for("stopped")
        terminal.wait_for(PROMPT)
        assert service.request_count == 1


@pytest.mark.parametrize("page", exhaustive(["<html><title>502 Bad Gateway</title>", "<p>", ""]))
def test_the_page_of_a_proxy_is_one_line(page: str) -> None:
    with model_service(Reply(body=page.encode(), status=502)) as service:
        done = ask(service, "a task")
        assert (done.returncode, service.request_count) == (3, 3)
        assert "the service answered with status 502: asking again in 1 s" in done.stderr
        assert done.stderr.splitlines()[-1].endswith("Bad Gateway.")
        assert "<" not in done.stderr


@pytest.mark.parametrize(
    ("reply", "advice"),
    exhaustive(
        [
            (
                Reply(body=b"<p>Hi", content_type="text/html"),
                "sent a web page. Check --base-url and the network.",
            ),
            (json_reply({"error": {"message": "No such model."}}, 404), "Check --model and --base"),
            (json_reply({"error": {"message": "What?"}}, 400), "status 400: What?\n"),
            (json_reply({"detail": "Not yours"}, 403), "Not yours. Check what the API key may do."),
        ]
    ),
)
def test_advice_names_options_of_the_command(reply: Reply, advice: str) -> None:
    with model_service(reply) as service:
        done = ask(service, "a task")
        assert done.returncode == 3
        assert advice in done.stderr
