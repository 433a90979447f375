"""`--retry-alone`: run each failed test once more, alone, in a fresh process.

A test that passes then is flaky. Its name is printed last, and both outputs are kept in a file. The
run fails only for tests that fail twice, and for whatever is no failure of a single test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

_MOST = 60  # failures that are run again: with more, something else is broken
_OF_WORKERS = {"PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"}
_FLAKY = "flaky"  # a category of the reporter, which its last line counts


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--retry-alone`."""
    parser.addoption(
        "--retry-alone",
        type=Path,
        metavar="FILE",
        nargs="?",
        const=Path("build/flaky.txt"),
        help="run each failed test once more, alone. What passes then does not fail the run, is "
        "printed last, and its two outputs are written to FILE (build/flaky.txt)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Watch the results where they are put together, which is not in xdist's workers."""
    if (file := config.getoption("--retry-alone")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Retry(file), "cellblock-retry-alone")


class _Retry:
    """Collect what fails, and run it again when all others are done."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._failures: dict[str, list[pytest.TestReport]] = {}
        self._flaky: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a failure of a test, its setup or its teardown."""
        if report.failed:
            self._failures.setdefault(report.nodeid, []).append(report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """Run the failed tests again, before the reporter writes its summary."""
        known = sum(map(len, self._failures.values())) == session.testsfailed  # not collection
        if session.exitstatus == pytest.ExitCode.TESTS_FAILED and known:
            if len(self._failures) <= _MOST:
                self._run_again(session)
        yield

    def _run_again(self, session: pytest.Session) -> None:
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        assert isinstance(reporter, pytest.TerminalReporter)
        outputs = list[str]()
        for name, reports in self._failures.items():
            reporter.ensure_newline()
            reporter.write_line(f"retry alone: {name}")
            argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", name]
            again = subprocess.run(
                argv,
                cwd=session.config.rootpath,
                env={key: value for key, value in os.environ.items() if key not in _OF_WORKERS},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
            verdict = "failed again" if again.returncode else "passed"
            outputs += [f"===== {name}: {verdict} alone", *map(_text_of, reports), again.stdout]
            if again.returncode == 0:
                self._flaky.append(name)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text("\n".join(outputs))
        self._move_flaky(reporter)
        if len(self._flaky) == len(self._failures):
            session.exitstatus = pytest.ExitCode.OK

    def _move_flaky(self, reporter: pytest.TerminalReporter) -> None:
        """Take the flaky tests out of what the reporter calls failures and errors."""
        for category in ("failed", "error"):
            reports: list[pytest.TestReport] = reporter.stats.pop(category, [])
            if rest := [each for each in reports if each.nodeid not in self._flaky]:
                reporter.stats[category] = rest
        for name in self._flaky:
            reporter.stats.setdefault(_FLAKY, []).append(self._failures[name][0])

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Print the names of the flaky tests, after everything else."""
        writer = config.get_terminal_writer()
        if self._flaky:
            writer.line(f"The outputs of both runs are in {self._file}.")
        for name in self._flaky:
            writer.line(f"flaky: {name}: {_reason_of(self._failures[name][0])}")


def _reason_of(report: pytest.TestReport) -> str:
    """Return the first line of the error, by which the cause may be found in the output of CI."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longrepr).partition("\n")[0][:300]


def _text_of(report: pytest.TestReport) -> str:
    parts = [f"----- {report.when}", report.longreprtext]
    parts += [f"----- {title}\n{content}" for title, content in report.sections]
    return "\n".join(parts)
