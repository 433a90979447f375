"""The live cell: one interpreter for all blocks of a session, and frozen copies of it, to go back to or to branch from.

Such a copy is a *keeper*. Whatever comes from here is only ever framed and read as JSON by the server: code that runs here
shares this process, so nothing that it says is trusted further than the code itself.
"""

from __future__ import annotations

import _thread
import base64
import contextlib
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from ... import protocol, values
from ...linux import syscalls
from . import fork_state, hidden_children
from .branch import Reborn, bring_forth, close_all
from .checkpoint import Keeper, be_first_to_die, fork_hidden
from .control import Control, ControlLost, out_of_the_way
from .prefault import WarmPages
from .shell import Shell

_PIECE = 1 << 20  # bytes of one piece of a value
_LONG_TEXT = 1 << 16  # characters
_LARGEST_DISPLAY = protocol.MAX_FRAME // 2
_PASSED = 0.001  # seconds, after which Python has left what drops an interrupt

# Without the enums of `signal`, which each cell would have to copy.
_set_signal: Callable[[int, Any], Any] = importlib.import_module("_signal").signal
_waitpid = os.waitpid  # the one that knows of keepers
_SIGINT = int(signal.SIGINT)
_IGNORE = int(signal.SIG_IGN)


class Session:
    """One shell, what it is told to do, and the frozen copies that it made of itself."""

    def __init__(self, shell: Shell, control: int, cwd: str) -> None:
        self._shell, self._control, self._cwd = shell, Control(control), cwd
        self._streams = [out_of_the_way(os.dup(1)), out_of_the_way(os.dup(2))]
        self._same = [os.fstat(stream) for stream in self._streams]
        self._run = 0
        self._interrupted = False
        self._keepers = set[int]()
        self._warm = WarmPages()
        hidden_children.hide(self._keepers)
        self._last = b""  # what is to be sent with the answer
        shell.publish, shell.publish_last = self._publish, self._publish_last
        sys.unraisablehook = self._on_dropped

    def serve(self) -> NoReturn:
        """Do as told until the control stream ends."""
        be_first_to_die()
        self._hello()
        while True:
            try:
                while True:
                    self._warm.copy(self._control.is_quiet)
                    self._take(*self._control.receive())
            except Reborn as born:
                self._begin_again(born)
            except ControlLost:
                os._exit(1)  # nothing that happens here could be told to anybody
            except KeyboardInterrupt:
                continue  # one that came too late for its cell

    def enter(self) -> None:
        """Go into the work folder, now that it is there."""
        os.chdir(self._cwd)
        sys.path[0:0] = [""]
        self._shell.begin_in(self._cwd)

    def _hello(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._control.send(protocol.ANSWER, 0, {"pid": os.getpid(), "keepers": [*self._keepers]})

    def _take(self, frame: protocol.Frame, descriptors: list[int]) -> None:
        self._run = frame.run
        if frame.kind != protocol.ASK:
            return  # what is left of a value or a line of input that nobody waits for any more
        try:
            answer = self._do(frame.json(), descriptors)
        except (ControlLost, KeyboardInterrupt):
            raise
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        last, self._last = self._last, b""
        self._control.send_frame(last + protocol.encode_json(protocol.ANSWER, frame.run, answer))
        self._shell.tidy()

    def _do(self, order: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        match order["op"]:
            case "enter":
                self.enter()
                return {}
            case "run":
                return self._guarded(self._run_cell, order)
            case "get":
                return self._guarded(self._get, order)
            case "set":
                return self._guarded(self._set, order)
            case "variables":
                return self._guarded(self._describe, order)
            case "flush":
                self._freeze(flush=True)
                return {}
            case "keep":
                return self._keep(descriptors[0], exact=bool(order["exact"]))
            case "branch":
                return self._branch(order, descriptors)
            case unknown:
                return {"error": f"A session cannot {unknown!r}."}

    # cells and values

    def _guarded(
        self, work: Callable[[dict[str, Any]], dict[str, Any]], order: dict[str, Any]
    ) -> dict[str, Any]:
        """Do what runs user code: an interrupt ends it, the time it takes is told."""
        answer: dict[str, Any]
        before = time.process_time() + _children_seconds()
        self._interrupted = False
        self._own_streams()
        try:
            try:
                _set_signal(_SIGINT, self._on_interrupt)
                answer = work(order)
            finally:
                _set_signal(_SIGINT, _IGNORE)
        except KeyboardInterrupt:
            answer = {"exit": 130} | ({"error": "It was interrupted."} if self._interrupted else {})
            _set_signal(_SIGINT, _IGNORE)
        except ControlLost:
            raise
        except Exception as error:
            answer = {"exit": 1, "error": f"{type(error).__name__}: {error}"}
        answer["interrupted"] = self._interrupted
        answer["cpu"] = time.process_time() + _children_seconds() - before
        return answer

    def _on_interrupt(self, _number: int, _frame: object) -> None:
        self._interrupted = True
        self._shell.interrupted = True
        raise KeyboardInterrupt

    def _on_dropped(self, dropped: Any) -> None:
        """Interrupt again what was interrupted where Python drops every exception: in a finalizer, or right after a fork."""
        if self._interrupted and dropped.exc_type is KeyboardInterrupt:
            _thread.start_new_thread(self._interrupt_again, (_thread.get_ident(),))
        else:
            sys.__unraisablehook__(dropped)

    def _interrupt_again(self, thread: int) -> None:
        time.sleep(_PASSED)
        if self._interrupted:  # and no other cell has begun
            signal.pthread_kill(thread, signal.SIGINT)

    def _own_streams(self) -> None:
        """Have descriptors 1 and 2 be the session's streams again, whatever the cell before did to them."""
        for target, (stream, same) in enumerate(zip(self._streams, self._same, strict=True), 1):
            try:
                if not _is(target, same):
                    os.dup2(stream, target)
                if not os.get_blocking(stream):
                    os.set_blocking(stream, True)  # of both: they are one open file
            except OSError:
                continue

    def _run_cell(self, order: dict[str, Any]) -> dict[str, Any]:
        self._shell.interrupted = False
        self._shell.ask = self._ask if order.get("input") else None
        return {
            "exit": self._shell.run(
                order["code"], quietly=bool(order.get("quietly")), file=order.get("file")
            )
        }

    def _publish(self, data: Any, metadata: Any) -> None:
        if frame := self._display(data, metadata):
            self._control.send_frame(frame)

    def _publish_last(self, data: dict[str, Any]) -> None:
        # The server is woken once for both.
        if len(text := data["text/plain"]) > _LONG_TEXT:
            self._last += self._display(data, {})
        else:
            self._last += protocol.encode_json(
                protocol.DISPLAY, self._run, {"data": {"text/plain": text}, "metadata": {}}
            )

    def _display(self, data: Any, metadata: Any) -> bytes:
        """Give the frame of a display; nothing, and say so, where it is none that can be sent."""
        try:
            bundle = {mime: _as_json(content) for mime, content in data.items()}
            frame = protocol.encode_json(
                protocol.DISPLAY, self._run, {"data": bundle, "metadata": dict(metadata)}
            )
        except (TypeError, ValueError, RecursionError) as error:
            sys.stderr.write(f"A display was left out: it is no JSON ({error}).\n")
            return b""
        if len(frame) > _LARGEST_DISPLAY:
            sys.stderr.write(
                f"A display of {len(frame)} bytes was left out: the most is {_LARGEST_DISPLAY}.\n"
            )
            return b""
        return frame

    def _ask(self, prompt: str, hidden: bool) -> str:
        self._control.send(protocol.INPUT, self._run, {"prompt": prompt, "hidden": hidden})
        return self._data().decode(errors="replace")

    def _data(self) -> bytes:
        while True:
            frame, _ = self._control.receive()
            if frame.kind == protocol.DATA and frame.run == self._run:
                return frame.payload

    def _describe(self, _order: dict[str, Any]) -> dict[str, Any]:
        return {"variables": values.describe(self._shell.variables, self._shell.hidden)}

    def _get(self, order: dict[str, Any]) -> dict[str, Any]:
        name = order["name"]
        if name not in self._shell.variables:
            return {"error": f"There is no variable {name!r} in the session.", "missing": True}
        kind, data = values.encode(self._shell.variables[name])
        for start in range(0, len(data), _PIECE):
            self._control.send(protocol.PIECE, self._run, data[start : start + _PIECE])
        return {"kind": kind}

    def _set(self, order: dict[str, Any]) -> dict[str, Any]:
        data = bytearray()
        while len(data) < order["size"]:
            data += self._data()
        value = values.decode(order["kind"], bytes(data))
        self._shell.variables[order["name"]] = (
            value.to_pandas() if order["kind"] == "frame" else value
        )
        return {}

    # frozen copies

    def _keep(self, descriptor: int, *, exact: bool) -> dict[str, Any]:
        """Make a keeper that listens on `descriptor`. `exact`: refuse whatever it could not carry over."""
        is_alone = self._is_alone()  # mostly, and then no thread need be asked for its name
        if exact:
            why = fork_state.obstacles(self._keepers, self._shell.pending_tasks())
        else:
            why = [] if is_alone else fork_state.python_threads()
        if why:
            os.close(descriptor)
            return {"refused": why}
        self._warm.note()
        frozen = self._freeze(flush=exact, besides={descriptor})
        pid = fork_hidden(frozen)
        if pid == 0:
            Keeper(descriptor, frozen, self.let_go).serve()
        try:
            os.setpgid(pid, pid)  # what its session sends to its own group does not come there
        except OSError:
            pass  # killed already
        os.close(descriptor)
        self._keepers.add(pid)
        if not is_alone and (why := fork_state.native_threads()):
            os.kill(pid, signal.SIGKILL)
        self._reap()
        return {"refused": why} if why else {"keepers": [pid]}

    def _is_alone(self) -> bool:
        if fork_state.is_alone():
            return True
        try:
            return self._shell.end_script_thread() and fork_state.is_alone()
        except Exception:
            return False  # code may have done anything to the shell: then its threads are named

    def _freeze(self, *, flush: bool, besides: Iterable[int] = ()) -> fork_state.Frozen:
        return fork_state.Frozen(
            flush=flush, besides={0, 1, 2, self._control.descriptor, *self._streams, *besides}
        )

    def _reap(self) -> None:
        """Clear away keepers that the server has ended."""
        for pid in list(self._keepers):
            try:
                has_ended = _waitpid(pid, os.WNOHANG)[0] != 0
            except ChildProcessError:
                has_ended = True
            if has_ended:
                self._keepers.discard(pid)

    def _branch(self, order: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        self._is_alone()  # if it can be
        why = fork_state.obstacles(self._keepers, self._shell.pending_tasks())
        if why:
            close_all(descriptors)
            return {"refused": why}
        answer = bring_forth(order, descriptors, self._freeze(flush=True), self.let_go)
        return {"refused": why} if (why := fork_state.native_threads()) else answer

    def let_go(self) -> None:
        """In a keeper, or the guard of a branch: let go of what is the session's."""
        self._control.close()
        self._keepers.clear()

    def _begin_again(self, born: Reborn) -> None:
        """In a fresh fork: be a session of its own."""
        self._control.close()
        self._control = Control(born.control)
        self._keepers.clear()
        self._keepers |= born.keepers
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
        with contextlib.suppress(PermissionError):  # a copy leads a group of its own already
            os.setsid()
        born.frozen.hear_again()
        self._shell.forget_loop()
        before = self._cwd
        if born.streams is not None:
            self._cwd = born.folder or before
            self._settle(born.streams)
            self._shell.move(before, self._cwd)
        born.frozen.thaw(moved=(before, self._cwd))
        if born.streams is not None:
            fork_state.reseed()
        be_first_to_die()
        self._hello()

    def _settle(self, streams: list[int]) -> None:
        """In a branch, which has come into another cell: take its streams, and give up what coming there needed."""
        for old, new in zip(list(self._streams), streams, strict=True):
            os.close(old)
            self._streams[self._streams.index(old)] = out_of_the_way(new)
        self._same = [os.fstat(stream) for stream in self._streams]
        self._own_streams()
        for capability in range(syscalls.CAP_LAST + 1):
            syscalls.drop_from_bounding_set(capability)
        syscalls.capability_call(0, 0, 0)()
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
        os.chdir(self._cwd)


def _is(descriptor: int, same: os.stat_result) -> bool:
    try:
        return os.fstat(descriptor).st_ino == same.st_ino
    except OSError:
        return False


def _as_json(content: Any) -> Any:
    """Give bytes as base64, which is how pictures stand in a MIME bundle."""
    return base64.b64encode(content).decode() if isinstance(content, bytes | bytearray) else content


def _children_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system
