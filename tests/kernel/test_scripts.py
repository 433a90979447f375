"""Scripts in displays would run in the browser, outside the sandbox."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from cellblock.kernel.safe_content import clean_bundle
from tests.kernel.live_kernel import LiveKernel, install, open_kernel

_SHOW_SCRIPTS = (
    "from IPython.display import HTML, Javascript, display\n"
    "display(HTML('<b>shown</b><script>alert(1)</script>'))\n"
    "display(Javascript('alert(2)'))"
)


def test_scripts_are_left_out_with_one_note(kernel: LiveKernel) -> None:
    reply = kernel.run(_SHOW_SCRIPTS)
    first, second = (content["data"] for content in reply.of_kind("display_data"))
    assert first["text/html"] == "<b>shown</b>"
    assert list(second) == ["text/plain"]
    assert reply.text("stderr").count("--allow-scripts") == 1


def test_scripts_are_shown_on_request(kernels: Path) -> None:
    install("--allow-scripts", name="scripts")
    with open_kernel(kernels / "scripts", "scripts") as kernel:
        reply = kernel.run(_SHOW_SCRIPTS)
    first, second = (content["data"] for content in reply.of_kind("display_data"))
    assert "<script>" in first["text/html"]
    assert second["application/javascript"] == "alert(2)"
    assert reply.text("stderr") == ""


def test_tables_of_pandas_keep_their_form(kernel: LiveKernel) -> None:
    reply = kernel.run("import pandas as pd\npd.DataFrame({'x': [1]})")
    html = reply.of_kind("execute_result")[0]["data"]["text/html"]
    assert 'class="dataframe"' in html
    assert "<td>1</td>" in html
    assert reply.text("stderr") == ""


def test_values_of_user_expressions_and_the_pager_are_cleaned(kernel: LiveKernel) -> None:
    kernel.run(
        "class Page:\n    def _repr_html_(self): return '<script>1</script>x'\npage = Page()"
    )
    values = kernel.run("0", user_expressions={"page": "page"}).content["user_expressions"]
    assert values["page"]["data"]["text/html"] == "x"
    reply = kernel.run(
        "get_ipython().payload_manager.write_payload("
        "{'source': 'page', 'data': {'text/html': '<script>1</script>'}})"
    )
    assert reply.content["payload"] == []


def test_a_terminal_client_receives_colours_but_no_other_codes(kernel: LiveKernel) -> None:
    reply = kernel.run(
        "display({'text/plain': '\\x1b[31mred\\x1b]52;c;eA==\\x07 \\\\u001b'}, raw=True)"
    )
    (shown,) = reply.of_kind("display_data")
    assert shown["data"]["text/plain"] == "\x1b[31mred\ufffd]52;c;eA==\x07 \\u001b"


@pytest.mark.parametrize(
    "html",
    [
        "<img src=x onerror=alert(1)>",
        "<img src='https://example.org/?data=1'>",
        "<iframe srcdoc='<script>1</script>'></iframe>",
        "<a href='javascript:alert(1)'>x</a>",
        "<a href='data:text/html,<script>1</script>'>x</a>",
        "<svg><script>alert(1)</script></svg>",
        "<div style='background-image: url(https://example.org)'>x</div>",
        "<div style='position: fixed; color: red'>x</div>",
        "<style>@import 'https://example.org';</style>",
        "<form action='https://example.org'><input autofocus onfocus=alert(1)></form>",
        "<meta http-equiv=refresh content='0;url=https://example.org'>",
        "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    ],
)
def test_active_html_is_cleaned(html: str) -> None:
    cleaned = clean_bundle({"text/html": html})[0]["text/html"]
    for part in ("alert", "example.org", "script:", "data:", "position", "<form", "srcdoc"):
        assert part not in cleaned


def test_a_vector_graphic_becomes_an_image() -> None:
    svg = "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    html = clean_bundle({"image/svg+xml": svg})[0]["text/html"]
    assert html.startswith('<img src="data:image/svg+xml;base64,')
    assert base64.b64decode(html.split(",")[1][:-2]).decode() == svg


def test_types_that_are_not_known_to_be_inert_are_left_out() -> None:
    given = {"text/plain": "x", "application/vnd.bokehjs_exec.v0+json": "", "image/png": "aGk="}
    cleaned, has_scripts = clean_bundle(given)
    assert list(cleaned) == ["text/plain", "image/png"]
    assert has_scripts
