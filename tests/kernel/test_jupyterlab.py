"""JupyterLab in a real browser: what cells show runs no script and loads nothing."""

from __future__ import annotations

import contextlib
import html
import os
import re
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cellblock.notebook import result_html
from cellblock.safe_output.bundle import clean_bundle
from tests.chromium import CHROMIUM, FLAGS, GUARD, Listener
from tests.kernel.jupyterlab_probes import INERT, PROBES
from tests.kernel.live_kernel import install, jupyter_folders

_MISSING = [name for name in ("jupyterlab", "playwright", "plotly") if find_spec(name) is None]
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's package chromium is not installed"),
    pytest.mark.skipif(bool(_MISSING), reason=f"not installed: {', '.join(_MISSING)}"),
]
_SETUP = (
    "from IPython.display import *\n"
    "def show(mime, data, **metadata): display({mime: data}, raw=True, metadata=metadata)\n"
    "names = {'<img src=x onerror=\"fetch(`URL/completion`)\">': 1}"
)
_ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+/)lab")
_IS_READY = """() => {
    const app = window.jupyterapp;
    const context = app?.shell?.currentWidget?.sessionContext;
    const is_ready = context?.isReady && context.session?.kernel?.status === 'idle';
    return is_ready && app.commands.isEnabled('notebook:run-all-cells');
}"""
_RUN = "() => void window.jupyterapp.commands.execute('notebook:run-all-cells')"
# Handlers in the page, and what formulas have beside text.
_TRACES = """() => [...document.querySelectorAll('.jp-OutputArea-output, .jp-OutputArea-output *')]
    .flatMap(element => [...element.attributes].map(attribute => [element, attribute]))
    .filter(([element, {name, value}]) =>
        name.startsWith('on') || (name === 'href' && element.closest('mjx-container')))
    .map(([element, {name, value}]) => `${element.localName} ${name}=${value}`)"""


@dataclass
class _Lab:
    """A running JupyterLab, a browser, and the listener that the notebooks try to reach."""

    url: str
    browser: Any
    listener: Listener

    @contextlib.contextmanager
    def run_notebook(self, kernel: str) -> Generator[Any]:
        """Run all cells of the kernel's notebook, and yield the page with their outputs."""
        page = self.browser.new_page()
        page.set_default_timeout(GUARD * 1000)
        page.goto(f"{self.url}lab/tree/{kernel}.ipynb?reset")
        page.wait_for_function(_IS_READY)
        page.evaluate(_RUN)
        page.get_by_text("the last cell", exact=True).wait_for()
        # What is drawn late: formulas, and charts, whose code is loaded first.
        page.locator(".dataframe mjx-container").wait_for()
        page.locator(".vega-embed canvas").last.wait_for()
        page.locator(".js-plotly-plot .main-svg").last.wait_for()
        yield page
        page.close()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Lab]:
    """Yield a JupyterLab with a notebook for each of two kernels, one with `--allow-scripts`."""
    from playwright.sync_api import sync_playwright

    folder = tmp_path_factory.mktemp("lab")
    with Listener() as listener, jupyter_folders(folder):
        install()
        install("--allow-scripts", name="scripts")
        for kernel in ("cellblock", "scripts"):
            _write_notebook(folder / "notebooks", kernel, f"{listener.address}/{kernel}")
        with _start_lab(folder) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            yield _Lab(url, browser, listener)
            browser.close()


def _write_notebook(folder: Path, kernel: str, address: str) -> None:
    import nbformat

    notebook: Any = nbformat.v4.new_notebook()  # pyright: ignore[reportUnknownMemberType] - untyped
    codes = [_SETUP, *PROBES.values(), *INERT.values(), "print('the last', 'cell')"]
    names = ["setup", *PROBES, *INERT, "last"]
    for name, code in zip(names, codes, strict=True):
        code = code.replace("URL", f"{address}/{name}" if name != "setup" else address)
        cell: Any = nbformat.v4.new_code_cell(code)  # pyright: ignore[reportUnknownMemberType] - untyped
        cell.metadata.tags = ["raises-exception"]
        notebook.cells.append(cell)
    notebook.metadata.kernelspec = {"name": kernel, "display_name": kernel}
    folder.mkdir(exist_ok=True)
    nbformat.write(notebook, folder / f"{kernel}.ipynb")  # pyright: ignore[reportUnknownMemberType] - untyped


@contextlib.contextmanager
def _start_lab(folder: Path) -> Generator[str]:
    settings = folder / "settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    # Also the cells outside the window are shown.
    (settings / "tracker.jupyterlab-settings").write_text('{"windowingMode": "none"}')
    environment = {
        **os.environ,
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
    }
    options = (
        "--no-browser --allow-root --ServerApp.port=0 --IdentityProvider.token= "
        "--LabApp.expose_app_in_browser=True --LabApp.news_url=None "
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"
    )
    command = [sys.executable, "-m", "jupyterlab", *options.split()]
    with subprocess.Popen(
        [*command, f"--ServerApp.root_dir={folder / 'notebooks'}"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stderr is not None
        try:
            log = ""
            while (found := _ADDRESS.search(log)) is None:
                line = server.stderr.readline()
                assert line, log
                log += line
            drain = threading.Thread(target=server.stderr.read)
            drain.start()
            yield found[1]
        finally:
            server.terminate()
    drain.join()


def test_nothing_runs_or_loads_in_the_browser(lab: _Lab) -> None:
    with lab.run_notebook("cellblock") as page:
        assert page.evaluate(_TRACES) == []
        _complete_names(page)
        page.evaluate(f"fetch('{lab.listener.address}/cellblock/sentinel')")
        lab.listener.wait_for("cellblock", {"sentinel"})
    assert lab.listener.names("cellblock") == {"sentinel"}


def test_with_scripts_allowed_each_probe_reaches_the_listener(lab: _Lab) -> None:
    with lab.run_notebook("scripts") as page:
        lab.listener.wait_for("scripts", set(PROBES))
        assert any("href=" in trace for trace in page.evaluate(_TRACES))
    assert not set(INERT) & lab.listener.names("scripts")


def test_pages_of_results_load_nothing(lab: _Lab) -> None:
    page, address = lab.browser.new_page(), lab.listener.address
    for name, show in {"result": _show_result, "frame": _show_frame}.items():
        url = f"{address}/{name}"
        content = (
            f"<!doctype html><html><head><style>@import '{url}/sheet';</style></head>"
            f"<body><img src='{url}/image'><p style='background: url({url}/style)'>x</p>"
            f"<link rel=stylesheet href='{url}/link'>"
        )
        page.set_content(show(content), wait_until="load")
        page.frame_locator("iframe").get_by_text("x").wait_for()
        page.evaluate(f"fetch('{url}/sentinel')")
        lab.listener.wait_for(name, {"sentinel"})
    lab.listener.wait_for("frame", {"sheet", "image", "style", "link"})
    assert lab.listener.names("result") == {"sentinel"}
    page.close()


_BOX = "<p style='height: 200px; width: 200px; background: red'>x"
_PAGE = """<!doctype html><div id=top style='height: 200px'>The page of the client</div>
<div style='display: flex'><div id=left style='width: 150px; height: 100px'>left</div>
<div>OUTPUT<div id=below>another output</div></div></div>"""
# What is in an output, around which a page has a box above and another output below.
_SPREADING = {
    "string": """<style>@media screen { "
        p { content: "} #top { position: fixed; background: url(/LEAK) } " } }</style><p>x""",
    "siblings": "<style>+ div { color: red } ~ * { visibility: hidden }</style><p>x",
    "page-siblings": "<style>body + *, :root ~ div, p\\ , + div { display: none }</style><p>x",
    "flex": f"<div style='display: flex; height: 0; align-items: flex-end'>{_BOX}",
    "flex-sheet": f"<style>body {{ display: flex; height: 0; align-items: end }}</style>{_BOX}",
    "grid": f"<div style='display: grid; width: 0; justify-content: end'>{_BOX}",
    "endless": "<style>body { margin-top: calc(-infinity * 1px); padding-top: 33553900px }</style>"
    + _BOX,
    "shadow": "<p style='text-shadow: 0 -100px 0 red; font-size: 40px'>xxxx",
    "line": "<p style='font-size: 900px; line-height: 0; margin: 0; color: red'>|||",
    "border": "<p style='border: 1px solid; "
    "border-image: linear-gradient(red, red) 1 / 1px / 99px'>x",
    "direction": f"<table dir=rtl width=100><tr><td>{_BOX}",
}


def test_styles_change_and_cover_nothing_outside_of_their_output(lab: _Lab) -> None:
    page = lab.browser.new_page()
    with_styles = dict[str, bytes]()
    for name, html_text in {"none": "", **_SPREADING}.items():
        shown = clean_bundle({"text/html": html_text}).data.get("text/html", "")
        page.set_content(_PAGE.replace("OUTPUT", shown))
        assert page.locator("#below").is_visible(), name
        with_styles[name] = page.locator("#top").screenshot() + page.locator("#left").screenshot()
    assert [name for name in with_styles if with_styles[name] != with_styles["none"]] == []
    for name in ("flex", "grid", "shadow", "line", "border"):  # as they are
        page.set_content(_PAGE.replace("OUTPUT", _SPREADING[name]))
        drawn = page.locator("#top").screenshot() + page.locator("#left").screenshot()
        assert drawn != with_styles["none"], name
    page.close()


def _show_result(page: str) -> str:
    return result_html("", [{"text/html": page}])


def _show_frame(page: str) -> str:
    return f'<iframe sandbox srcdoc="{html.escape(page)}"></iframe>'


def _complete_names(page: Any) -> None:
    """Let JupyterLab offer a name that is HTML."""
    page.locator(".jp-CodeCell .cm-content").last.click()
    page.keyboard.type("\nnames[")
    page.keyboard.press("Tab")
    page.locator(".jp-Completer-item").first.wait_for()
