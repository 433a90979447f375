"""What frames and figures show in a session is what they show in a notebook, within limits."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import SandboxSessionServer
from tests.executors.session.live_session import LiveSession, open_server, open_session

WIDE = (
    "import pandas as pd\n"
    "frame = pd.DataFrame({f'column{n}': [n, -n] for n in range(30)})\n"
    "notebook = frame.to_string(max_cols=20, line_width=80, show_dimensions=True)\n"
)
LIMIT = 12 << 20  # bytes of one display


@pytest.fixture
def live(shared: SandboxSessionServer) -> Iterator[LiveSession]:
    """Yield a session without a time limit, for large libraries on a busy machine."""
    with open_session(shared, timeout=None) as session:
        yield session


def test_wide_frames_have_twenty_columns_as_in_a_notebook(live: LiveSession) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    live.run_ok(WIDE)
    assert "column9" in live.run_ok("frame")
    assert live.run_ok("repr(frame) == notebook") == "True"
    assert live.run_ok("print(frame)") == live.run_ok("print(notebook)")
    assert live.run_ok("pd.get_option('display.max_columns'), frame.shape") == "(20, (2, 30))"


def test_a_library_that_was_preloaded_has_the_settings_of_a_notebook() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    with open_server(preload=["pandas"]) as server, open_session(server, timeout=None) as live:
        assert live.run_ok("import pandas; pandas.get_option('display.max_columns')") == "20"


def test_a_library_that_is_missing_or_broken_fails_as_without_settings(live: LiveSession) -> None:
    live.run_ok("import sys, pathlib; sys.path[:] = ['']; sys.modules.pop('pandas', None)")
    assert "No module named 'pandas'" in live.output_of("import pandas")
    (live.folder / "pandas.py").write_text("1 / 0")
    assert "ZeroDivisionError" in live.output_of("import pandas")
    (live.folder / "pandas.py").write_text("mine = 1")
    assert live.run_ok("import pandas; pandas.mine") == "1"


# limits of displays


def test_a_page_that_is_too_large_is_left_out_and_the_text_kept(live: LiveSession) -> None:
    text, page = (f"lambda self: 'x' * {size}" for size in (2 << 20, LIMIT))
    live.run_ok(f"class Page: __repr__, _repr_html_ = {text}, {page}")
    result = live.run("Page()")
    assert [list(display) for display in result.displays] == [["text/plain"]], result
    assert result.output_files == []
    assert result.stderr.startswith("text/html of ")
    assert f"left out of a display. The limit of a display is {LIMIT} bytes." in result.stderr
    assert result.truncated


def test_a_display_of_which_nothing_fits_is_named(live: LiveSession) -> None:
    result = live.run(f"display({{'text/html': 'x' * {2 * LIMIT}}}, raw=True)")
    assert (result.displays, result.outcome) == ([], "ok")
    assert f"text/html of {2 * LIMIT + 2} bytes was left out of a display." in result.stderr


def test_displays_of_one_block_are_limited_and_what_is_dropped_is_named(live: LiveSession) -> None:
    code = "page = 'x' * 10_000_000\nfor _ in range(8): display({'text/html': page}, raw=True)"
    result = live.run(code)
    assert len(result.displays) == 6
    assert result.stderr.count("was dropped. The limit of all displays of a block is") == 2
    assert len(live.run("display({'text/html': page}, raw=True)").displays) == 1


# figures of plotly

# jsonschema, which plotly uses, would take 5 s to import a grammar of URLs that it does without.
FIGURE = """import sys; sys.modules['rfc3987_syntax'] = None
import plotly.graph_objects as go
figure = go.Figure(go.Bar(x=['left'], y=[2]))
"""


@pytest.mark.slow
def test_a_figure_of_plotly_is_one_page_with_everything_it_needs(live: LiveSession) -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    live.run_ok(FIGURE)
    for way in ("figure", "figure.show()") * 2:  # not only the first one
        result = live.run(way)
        kinds = [sorted(display) for display in result.displays]
        assert kinds == [["application/vnd.plotly.v1+json", "text/html"]], result.output
        [page] = result.output_files
        assert page.stat().st_size > 1_000_000  # plotly.js is in it
        assert "<html>" in page.read_text()[:100]


def test_another_renderer_of_plotly_can_be_chosen(live: LiveSession) -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    live.run_ok("import os; os.environ['PLOTLY_RENDERER'] = 'plotly_mimetype'")
    [display] = live.run(FIGURE + "figure").displays
    assert list(display) == ["application/vnd.plotly.v1+json"]


@pytest.mark.slow
def test_the_page_of_a_figure_shows_it_without_a_network(live: LiveSession, tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("Debian's package chromium is not installed")
    [page] = live.run(FIGURE + "figure").output_files
    alone = tmp_path / "page.html"
    alone.write_bytes(page.read_bytes())
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    offline = ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000"]
    command = [chromium, *options, *offline, "--dump-dom", alone.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert 'class="main-svg"' in shown
    assert ">left</text>" in shown
