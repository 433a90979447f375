"""Sign in to the console and send its forms as a browser does."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Mapping
from html import unescape

import httpx

from ..rest.requesting import wait_for
from ..serving import Server

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@contextlib.contextmanager
def browsing(server: Server) -> Generator[httpx.Client]:
    """Yield a client of the pages that keeps cookies and follows no redirects by itself."""
    with httpx.Client(base_url=f"{server.url}/console", timeout=60) as client:
        yield client


@contextlib.contextmanager
def visiting(server: Server, key: str) -> Generator[httpx.Client]:
    """Yield such a client, signed in with `key`."""
    with browsing(server) as client:
        send(client, "/sign-in", {"key": key})
        yield client


def send(client: httpx.Client, path: str, fields: Mapping[str, str]) -> str:
    """Send a form. Return the path below /console that it leads to."""
    answer = client.post(path, data=dict(fields), headers=SAME_ORIGIN)
    assert answer.status_code == 303, text_of(answer)
    location = answer.headers["location"]
    assert location.startswith("/console/")
    return location.removeprefix("/console")


def run(client: httpx.Client, path: str, code: str, **fields: str) -> str:
    """Run code with the form at `path`. Return the page at its end."""
    target = send(client, path, {"code": code, **fields}).partition("#")[0]
    return wait_for(lambda: _page_at_end(client, target))


def _page_at_end(client: httpx.Client, path: str) -> str:
    page = client.get(path).text
    return "" if "data-events" in page else page


def text_of(answer: httpx.Response) -> str:
    """Return the text of a page, without its markup."""
    return unescape(re.sub(r"<[^>]*>", "", answer.text))
