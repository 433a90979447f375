"""Fork the program under test, run the tests, and report the verdict to the caller.

The program is forked before the tests are read, so that its memory never holds them. The process of
the tests cannot be looked into (`PR_SET_DUMPABLE`, see prctl(2)), and it alone has the pipe that
carries the verdict. If the program ends it, or fills its pipes, there is no verdict.
"""

from __future__ import annotations

import ctypes
import json
import os
import reprlib
import resource
import select
import signal
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

from .errors import TEXT
from .peer import LINE, Gone
from .program import run_program
from .tests import FILE, CannotJudge, Names, TestsPeer
from .values import InvalidValue

Read = Callable[[], bytes]
_PR_SET_DUMPABLE = 4
_MAX_MESSAGE = 1000  # characters
_END_SECONDS = 5


def main(read: Read, path_of_program: list[str], programs: str, python: str) -> NoReturn:
    """Read the program, fork it, then read the tests and run them.

    In the folders of `sys.path` the program cannot put modules. Its own are `path_of_program`. The
    tests find commands in the folders `programs`, and `python`: neither can be replaced by it.
    """
    verdict_pipe = os.dup(1)
    os.dup2(2, 1)  # what the tests print is output
    _set_dumpable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an exception would skip a part of the tests
    settings = json.loads(read())
    (from_tests, to_program), (from_program, to_tests) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        _give_stdin(settings["stdin"])
        _set_dumpable(True)
        sys.path[:] = path_of_program
        run_program(from_tests, to_tests, settings["code"], settings["cpu_seconds"])
    os.close(from_tests)
    os.close(to_tests)
    os.environ["PATH"], sys.executable = programs, python
    order = json.loads(read())
    _give_stdin("")
    peer = TestsPeer(from_program, to_program)
    try:
        peer.watched = os.pidfd_open(pid)
    except OSError:
        pass  # a kernel without it
    run = TestRun(peer, order["tests"], order["entry_point"])
    outcome, message = run.judge(order["cpu_seconds"])
    if isinstance(peer.fault, Gone):
        outcome, message = _describe_end(pid, peer.watched)
    _report(verdict_pipe, {"nonce": order["nonce"], "outcome": outcome, "message": message}, pid)


def _set_dumpable(is_dumpable: bool) -> None:
    if ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, is_dumpable, 0, 0, 0) != 0:
        raise OSError("The process of the tests cannot be hidden from the program.")


def _give_stdin(text: str) -> None:
    """Replace standard input, from which the tests are read."""
    if text:
        import tempfile

        with tempfile.TemporaryFile() as file:
            file.write(text.encode(errors="replace"))
            file.seek(0)
            os.dup2(file.fileno(), 0)
    else:
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)


class TestRun:
    """One run of the tests. Its outcomes are those of verdicts."""

    def __init__(self, peer: TestsPeer, code: str, entry_point: str | None) -> None:
        self._peer, self._code, self._entry_point = peer, code, entry_point

    def judge(self, cpu_seconds: float | None) -> tuple[str, str]:
        """Return the outcome, and a message that says why the program has not passed."""
        try:
            code = compile(self._code, FILE, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError) as error:
            return "error", _shorten(f"The tests cannot be compiled: {error}")
        if cpu_seconds is not None:
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)  # its signal ends the process
        try:
            self._peer.ask("run")
            self._run_tests(code)
        except BaseException as error:  # also SystemExit
            outcome, message = self._describe(error)
        else:
            outcome, message = "passed", ""
        if self._peer.fault is not None and outcome != "error":
            outcome, message = self._describe(self._peer.fault)
        return outcome, _shorten(message)

    def _run_tests(self, code: Any) -> None:
        names = Names(self._peer)
        if self._entry_point is not None:
            names["candidate"] = self._find_entry_point(names, self._entry_point)
        self._peer.is_used = False
        exec(code, names)
        if self._entry_point is not None and callable(check := names.get("check")):
            check(names["candidate"])
        if not self._peer.is_used:
            raise CannotJudge("The tests have not used the program.")

    def _find_entry_point(self, names: Names, entry_point: str) -> Any:
        if not entry_point.isidentifier():  # such as Solution().solve
            return eval(compile(entry_point, FILE, "eval", dont_inherit=True), names)
        names[entry_point] = self._peer.named(entry_point)
        return names[entry_point]

    def _describe(self, error: BaseException) -> tuple[str, str]:
        line_of_tests = self._describe_line(error.__traceback__)
        where = line_of_tests and f" in{line_of_tests}"
        if isinstance(error, InvalidValue):
            return "error", f"The program sent something else than a value: {error}"
        if isinstance(error, CannotJudge):
            return "error", f"{error}{line_of_tests and f' See{line_of_tests}.'}"
        text = error.__dict__.get(TEXT) or str(error)
        text = f"{type(error).__name__}{': ' if text else ''}{text}"
        if (line := error.__dict__.get(LINE)) is not None:
            of_program = f" (line {line} of the program)" if line else ""
            return "error", f"The program raised {text}{of_program}{where}"
        if isinstance(error, AssertionError):
            last = self._peer.last_result
            result = f". The last call returned {reprlib.repr(last[0])}" if last else ""
            return "failed", f"AssertionError{f': {error}' if str(error) else ''}{where}{result}"
        return "error", f"The tests raised {text}{where}"

    def _describe_line(self, trace: TracebackType | None) -> str:
        number, lines = 0, self._code.splitlines()
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == FILE:
                number = trace.tb_lineno
            trace = trace.tb_next
        if not 0 < number <= len(lines):
            return ""
        return f" line {number} of the tests: {lines[number - 1].strip()[:200]}"


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}..."


def _describe_end(pid: int, pidfd: int) -> tuple[str, str]:
    """Describe the end of a program that does not answer any more."""
    if pidfd >= 0:
        select.select([pidfd], [], [], _END_SECONDS)
    status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if status is None:
        return "error", "The program closed the connection to its tests."
    if status.si_code == os.CLD_EXITED:
        code = status.si_status
        return "error", f"The program ended with exit code {code} before its tests had ended."
    name = signal.Signals(status.si_status).name
    outcome = "timeout" if status.si_status == signal.SIGXCPU else "error"
    return outcome, f"The program was ended by {name} before its tests had ended."


def _report(pipe: int, verdict: dict[str, object], pid: int) -> NoReturn:
    """End the program, then send the verdict, with the CPU time that the tests have used."""
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)  # without control groups, its time only counts when it is reaped
    finally:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        verdict["cpu_seconds"] = usage.ru_utime + usage.ru_stime
        data = f"\n{json.dumps(verdict)}".encode()
        while data:
            data = data[os.write(pipe, data) :]
        os._exit(0 if verdict["outcome"] == "passed" else 1)
