"""The console in a real browser, with the keyboard alone: every step, names, and hostile output."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import CHROMIUM, FLAGS, GUARD, Listener
from tests.kernel.jupyterlab_probes import INERT, PROBES

from ..rest.requesting import FOREVER
from ..serving import Server, run_old

_MISSING = [name for name in ("axe_playwright_python", "playwright") if find_spec(name) is None]
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's package chromium is not installed"),
    pytest.mark.skipif(bool(_MISSING), reason=f"not installed: {', '.join(_MISSING)}"),
]
_PICTURE = """\
import base64
from IPython.display import Image
print('drawn', 'here')
Image(base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwAD'
    'hgGAWjR9awAAAABJRU5ErkJggg=='))"""
_SHOW = (
    "from IPython.display import *\n"
    "def show(mime, data, **metadata): display({mime: data}, raw=True, metadata=metadata)\n"
)
_RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
_BROKEN_BUTTONS = """() => [...document.querySelectorAll('button')].filter(button => {
    const text = document.createRange();
    text.selectNodeContents(button.firstChild);
    return text.getClientRects().length > 1;
}).map(button => button.textContent)"""
# Handlers in the output.
_TRACES = """() => [...document.querySelectorAll('[data-output], [data-output] *')]
    .flatMap(element => [...element.attributes].map(attribute => [element, attribute]))
    .filter(([element, {name}]) => name.startsWith('on'))
    .map(([element, {name, value}]) => `${element.localName} ${name}=${value}`)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Yield Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield one
        one.close()


@contextlib.contextmanager
def _new_page(browser: Any, **options: Any) -> Generator[Any]:
    """Yield a page of a new browser profile."""
    context = browser.new_context(**options)
    one = context.new_page()
    one.set_default_timeout(GUARD * 1000)
    yield one
    context.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """Yield a page of a new browser profile, at whose end no script has failed."""
    problems = list[str]()

    def note(error: object) -> None:
        problems.append(str(error))

    with _new_page(browser) as one:
        one.on("pageerror", note)
        yield one
    assert problems == []


class _Keyboard:
    """Do what people do who have no mouse: go from control to control, type and press keys."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def go_to(self, role: str, name: str) -> None:
        """Press Tab until the control with this role and name has the focus."""
        target = self.page.get_by_role(role, name=name, exact=True).first
        target.wait_for()
        for _ in range(200):
            if target.evaluate("element => element === element.getRootNode().activeElement"):
                return
            self.page.keyboard.press("Escape")  # in the editor, Tab leads on only after it
            self.page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not lead to the {role} {name!r}.")

    def write(self, name: str, text: str) -> None:
        """Replace the content of the field with this name."""
        self.go_to("textbox", name)
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(text)

    def press(self, role: str, name: str) -> None:
        """Press the button, or follow the link, with this name."""
        self.go_to(role, name)
        self.page.keyboard.press("Enter")

    def run(self, code: str) -> None:
        """Run code, and wait until the page shows the run."""
        shown = self.page.locator("article.run").count()
        self.write("Code", code)
        self.page.keyboard.press("Control+Enter")
        self.page.locator("article.run").nth(shown).wait_for()


def _sign_in(page: Any, server: Server, key: str) -> _Keyboard:
    keyboard = _Keyboard(page)
    page.goto(f"{server.url}/console")
    keyboard.go_to("textbox", "API key")
    page.keyboard.insert_text(key)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Playground").wait_for()
    return keyboard


def _output(page: Any) -> Any:
    """Return the output of the newest run."""
    return page.locator("[data-output]").first


def _wait_for_status(page: Any, status: str) -> None:
    page.locator("article.run").first.locator("[data-status]", has_text=status).wait_for()


@pytest.mark.slow
def test_everything_can_be_done_with_the_keyboard(
    server: Server, key: str, page: Any, tmp_path: Path
) -> None:
    keyboard = _sign_in(page, server, key)
    keyboard.run(f"x = 1\n{_PICTURE}")
    _output(page).get_by_text("drawn here").wait_for()
    picture = _output(page).get_by_role("img", name="<IPython.core.display.Image object>")
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
    _wait_for_status(page, "ok")

    (tmp_path / "up.txt").write_text("content")
    with page.expect_file_chooser() as chosen:
        keyboard.press("button", "Files to upload")
    chosen.value.set_files(tmp_path / "up.txt")
    keyboard.press("button", "Upload")
    with page.expect_download() as downloaded:
        keyboard.press("link", "up.txt")
    assert Path(downloaded.value.path()).read_text() == "content"

    keyboard.write("Name of a new checkpoint (optional)", "before")
    page.keyboard.press("Enter")
    page.locator(".tree .name", has_text="before").wait_for()
    keyboard.run("x = 2")
    _wait_for_status(page, "ok")
    keyboard.press("link", "Restore checkpoint before")
    keyboard.press("button", "Restore")
    keyboard.press("link", "Fork checkpoint before")
    keyboard.write("Identifier of the new session (optional)", "forked")
    keyboard.press("button", "Fork")
    page.get_by_role("heading", name="Session forked").wait_for()
    keyboard.run("print('x is', x)\ndisplay(x)\nx + 1")
    _output(page).get_by_text("2", exact=True).wait_for()
    assert _output(page).inner_text() == "x is 1\n1\n2"
    page.reload()
    assert _output(page).inner_text() == "x is 1\n1\n2"

    keyboard.run(FOREVER)
    _output(page).get_by_text("begun").wait_for()
    cancel = page.get_by_role("button", name=re.compile("^Cancel"))
    keyboard.press("button", cancel.text_content())
    _wait_for_status(page, "cancelled")

    keyboard.press("button", "Sign out")
    page.get_by_role("heading", name="Sign in").wait_for()
    page.go_back()
    page.get_by_role("heading", name="Sign in").wait_for()


@pytest.mark.slow
def test_output_comes_while_code_runs_and_changes_appear_without_reloading(
    server: Server, key: str, page: Any
) -> None:
    keyboard = _sign_in(page, server, key)
    keyboard.run("open('made.txt', 'w').close()\nprint('first')\ninput_ = open('go')")
    _output(page).get_by_text("first", exact=True).wait_for()
    _wait_for_status(page, "error")
    page.get_by_role("link", name="made.txt").wait_for()
    assert page.locator("#announcement").text_content() == "The run has ended: error."
    identifier = page.get_by_role("heading", level=1).text_content().removeprefix("Session ")
    keyboard.press("link", "Sessions")
    page.get_by_role("link", name=identifier).wait_for()
    with server.client(key, "/v1") as api:
        api.post("/sessions", json={"id": "made-elsewhere"})
        page.get_by_role("link", name="made-elsewhere").wait_for()


@pytest.mark.slow
def test_runs_of_other_doors_appear_and_end_without_reloading(
    server: Server, key: str, page: Any
) -> None:
    keyboard = _sign_in(page, server, key)
    keyboard.press("link", "Sessions")
    keyboard.write("Identifier (optional)", "shared")
    keyboard.press("button", "Create session")
    page.get_by_text("There is no run.").wait_for()
    code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('went')"
    with ThreadPoolExecutor(1) as pool, server.client(key) as client:
        running = pool.submit(run_old, client, code, "shared")
        _wait_for_status(page, "running")
        assert page.get_by_text("There is no run.").count() == 0
        client.put("/v1/sessions/shared/files/go", content=b"")
        _wait_for_status(page, "ok")
        _output(page).get_by_text("went").wait_for()
        page.get_by_role("link", name="go").wait_for()
        assert running.result().status_code == 200
    assert page.locator("article.run").count() == 1


@pytest.mark.slow
def test_long_output_is_bounded_in_the_page(server: Server, key: str, page: Any) -> None:
    keyboard = _sign_in(page, server, key)
    keyboard.run("for n in range(60_000): print('line', n)\nprint('last', 'line')")
    _output(page).get_by_text("last line").wait_for()
    _wait_for_status(page, "ok")
    assert len(_output(page).text_content()) < 300_000


@pytest.mark.slow
def test_code_is_written_in_an_editor(server: Server, key: str, page: Any) -> None:
    """It numbers lines, colours, indents and completes, and all of it comes from the server."""
    loaded, problems = list[str](), list[str]()

    def note(message: Any) -> None:
        if message.type == "error":  # such as what the content policy has refused
            problems.append(message.text)

    def note_request(request: Any) -> None:
        loaded.append(request.url)

    page.on("console", note)
    page.on("request", note_request)
    keyboard = _sign_in(page, server, key)
    keyboard.run("class Ship: cargo = 42\nship = Ship()")
    _wait_for_status(page, "ok")
    keyboard.write("Code", "")
    page.keyboard.type("def f():\nreturn ship.ca")
    page.get_by_role("option", name="cargo").click()
    lines = page.locator(".cm-line")
    assert lines.all_inner_texts() == ["def f():", "    return ship.cargo"]
    assert page.locator(".cm-lineNumbers").inner_text().split() == ["1", "2"]
    colours = {
        lines.get_by_text(text, exact=True).evaluate("element => getComputedStyle(element).color")
        for text in ("def", "f")
    }
    assert len(colours) == 2
    page.keyboard.press("Enter")
    page.keyboard.press("Shift+Tab")
    page.keyboard.type("f()")
    assert lines.all_inner_texts()[2:] == ["f()"]
    page.keyboard.press("Control+Enter")
    page.locator("article.run").nth(1).wait_for()
    _output(page).get_by_text("42", exact=True).wait_for()
    assert [url for url in loaded if not url.startswith(server.url)] == []
    assert problems == []


@pytest.mark.slow
def test_tab_leaves_the_editor_after_escape(server: Server, key: str, page: Any) -> None:
    keyboard = _sign_in(page, server, key)
    keyboard.go_to("textbox", "Code")
    page.locator(".cm-focused").wait_for()
    page.keyboard.press("Tab")
    while page.locator(".cm-line").inner_text() != " " * 4:
        page.wait_for_timeout(10)
    page.keyboard.press("Control+Enter")
    assert page.locator("#announcement").text_content() == "There is no code to run."
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "language"


@pytest.mark.slow
def test_without_scripts_code_is_written_in_a_text_area(
    server: Server, key: str, browser: Any
) -> None:
    with _new_page(browser, java_script_enabled=False) as page:
        page.goto(f"{server.url}/console")
        page.get_by_label("API key").fill(key)
        page.keyboard.press("Enter")
        page.get_by_label("Code").fill("6 * 7")
        page.get_by_role("button", name="Run", exact=True).click()
        page.get_by_role("heading", name="Session", level=1).wait_for()


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 400), ("dark", 1280)])
def test_axe_finds_no_barrier(
    server: Server, key: str, browser: Any, scheme: str, width: int
) -> None:
    viewport = {"width": width, "height": 900}
    with _new_page(browser, color_scheme=scheme, viewport=viewport, bypass_csp=True) as page:
        page.goto(f"{server.url}/console")
        _check(page)
        keyboard = _sign_in(page, server, key)
        _check(page)
        keyboard.run(
            "import sys; print('w', file=sys.stderr)\n"
            f"open('data-of-the-experiment.csv', 'w').close()\n{_PICTURE}"
        )
        _wait_for_status(page, "ok")
        keyboard.write("Name of a new checkpoint (optional)", "before")
        page.keyboard.press("Enter")
        page.locator(".tree .name", has_text="before").wait_for()
        page.get_by_text("Code of run").first.click()
        _check(page)
        keyboard.press("link", "Restore checkpoint before")
        page.get_by_role("heading", name="Restore").wait_for()
        _check(page)
        page.context.clear_cookies()
        _sign_in(page, server, server.keys.add(f"axe {scheme}", is_admin=True)[1])
        for path in ("sessions", "usage", "log", "keys", "nothing"):
            page.goto(f"{server.url}/console/{path}")
            _check(page)


def _check(page: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    found: Any = Axe().run(page, options=_RULES).response  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped
    assert [(each["id"], each["nodes"]) for each in found["violations"]] == []
    assert page.evaluate(_BROKEN_BUTTONS) == []
    # Nothing is beside the window.
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    """Yield what hostile displays try to reach."""
    with Listener() as one:
        yield one


@pytest.mark.slow
def test_nothing_of_hostile_output_runs_or_loads(
    server: Server, key: str, page: Any, listener: Listener
) -> None:
    """Live and after a reload."""
    keyboard = _sign_in(page, server, key)
    keyboard.run(_hostile(f"{listener.address}/console"))
    _wait_for_status(page, "ok")
    assert _output(page).get_by_text("the last probe").count() == 1
    assert page.evaluate(_TRACES) == []
    page.reload()
    _output(page).get_by_text("the last probe").wait_for()
    assert page.evaluate(_TRACES) == []
    page.goto(f"{listener.address}/console/sentinel")
    assert listener.names("console") == {"sentinel"}


@pytest.mark.slow
def test_each_of_two_protections_stops_scripts_alone(
    server: Server, key: str, browser: Any, listener: Listener
) -> None:
    """Without the policy, the cleaner does, and without the cleaner, the policy."""
    with _new_page(browser, bypass_csp=True) as page:
        keyboard = _sign_in(page, server, key)
        keyboard.run(_hostile(f"{listener.address}/cleaner"))
        _wait_for_status(page, "ok")
        assert page.evaluate(_TRACES) == []
        page.goto(f"{listener.address}/cleaner/sentinel")
        assert listener.names("cleaner") == {"sentinel"}
    with _new_page(browser) as page:
        _sign_in(page, server, key)
        _insert_probes(page, f"{listener.address}/policy")
        page.goto(f"{listener.address}/policy/sentinel")
        assert listener.names("policy") == {"sentinel"}
    with _new_page(browser, bypass_csp=True) as page:  # without both, the probes reach it
        _sign_in(page, server, key)
        _insert_probes(page, f"{listener.address}/open")
        listener.wait_for("open", set(_PAGES))


_INSERT = "document.querySelector('main').insertAdjacentHTML('beforeend', html)"
# What probes would put into a page that does not clean them.
_PAGES = {
    "handler": "<img src=x onerror=\"fetch('URL')\">",
    "image": "<img src='URL'>",
    "style": "<div style=\"background: url('URL')\">x</div>",
    "sheet": "<style>@import 'URL';</style>x",
    "frame": "<iframe src='URL'></iframe>",
    "frame-source": "<iframe srcdoc=\"<img src='URL'>\"></iframe>",
    "link": "<link rel=stylesheet href='URL'>",
    "object": "<object data='URL'></object>",
    "poster": "<video poster='URL'></video>",
    "vector": "<svg><image href='URL'/></svg>",
}


def _insert_probes(page: Any, address: str) -> None:
    html = "".join(text.replace("URL", f"{address}/{name}") for name, text in _PAGES.items())
    page.evaluate(f"html => {_INSERT}", html)
    # Whatever the parts request has been requested when a script of the page has gone round.
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")


def _hostile(address: str) -> str:
    """Return code that shows all probes, each on its own."""
    lines = [_SHOW]
    for name, code in {**PROBES, **INERT}.items():
        lines.append(f"get_ipython().run_cell({code.replace('URL', f'{address}/{name}')!r})")
    return "\n".join([*lines, "print('the last', 'probe')"])
