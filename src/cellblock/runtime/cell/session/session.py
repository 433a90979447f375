"""A live session: one interpreter for all its blocks, and the checkpoints forked from it.

User code shares this process, so the server trusts nothing that comes from here: it only parses the
frames and the JSON in them.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, NoReturn, TypeVar

from ... import protocol, values
from ...linux import syscalls
from ...messages import Answer, InputQuestion, RunCode
from ...packets import decode_packet
from ...session_orders import (
    PROCESS_ORDERS,
    CompleteCode,
    EnterFolder,
    FlushFiles,
    ForkBranches,
    GetVariable,
    ListVariables,
    MakeCheckpoint,
    MakeRollbackCheckpoint,
    ProcessOrder,
    SetVariable,
)
from . import (
    fork_state,
    helper_threads,
    hidden_children,
    library_settings,
    native_threads,
    saved_values,
    value_pickler,
)
from .branch import BecomeSession, fork_branches
from .checkpoint import CheckpointProcess, fork_hidden, raise_oom_score
from .control import Control, ControlLost, move_to_high_descriptor
from .displays import DisplayEncoder
from .fork_state import ForkState
from .interrupted_script import interrupt_script
from .missing_threads import MissingThreads
from .prefault import Prefaulter
from .saved_values import Variables
from .shell import Shell

_Order = TypeVar("_Order")
_PIECE_SIZE = 1 << 20  # bytes of a value in one frame
_REAP_SECONDS, _REAP_INTERVAL = 0.5, 0.002  # of waiting for a checkpoint that was killed
_HOOK_INTERVAL = 0.001  # between checks that Python has left the hook for dropped exceptions

# `_signal` without the enums of `signal`, whose use would write to memory in each fork.
_set_signal: Callable[[int, Any], Any] = importlib.import_module("_signal").signal
_waitpid = os.waitpid  # the original function, which also waits for checkpoints
_SIGINT = int(signal.SIGINT)
_IGNORE = int(signal.SIG_IGN)


_WITH_DESCRIPTOR = MakeCheckpoint | MakeRollbackCheckpoint | ForkBranches
_NO_DESCRIPTOR = "Too many files are open in the session (Limits.open_files). Close some of them."


class Session:
    """A shell, the orders that it carries out, and the checkpoints forked from it."""

    def __init__(self, shell: Shell, control: int, cwd: str) -> None:
        self._shell, self._control, self._cwd = shell, Control(control), cwd
        self._streams = [move_to_high_descriptor(os.dup(1)), move_to_high_descriptor(os.dup(2))]
        self._stream_status = [os.fstat(stream) for stream in self._streams]
        self._run = 0
        self._interrupted = False
        self._checkpoints = set[int]()
        self._prefaulter = Prefaulter()
        hidden_children.hide_children(self._checkpoints)
        self._held_frames = b""  # sent together with the answer
        self._displays = DisplayEncoder()
        self._lost_variables: list[str] = []  # at a restore by values, until it is reported
        self._threads = MissingThreads(shell)
        shell.publish, shell.publish_last = self._publish, self._publish_last
        shell.event_loop.start()
        library_settings.use_in_session()
        sys.unraisablehook = self._on_unraisable

    def serve(self) -> NoReturn:
        """Carry out orders until the control stream ends."""
        raise_oom_score()
        self._send_hello()
        while True:
            try:
                while True:
                    self._prefaulter.prefault(self._control.is_idle)
                    self._handle_frame(*self._control.receive())
            except BecomeSession as request:
                self._become_session(request)
            except ControlLost:
                os._exit(1)  # without the stream there is nowhere to report to
            except KeyboardInterrupt:
                continue  # the interrupt came after the end of its block

    def enter_work_folder(self) -> None:
        """Change to the work folder, once it is mounted."""
        os.chdir(self._cwd)
        sys.path[0:0] = [""]
        self._shell.start_folder_history(self._cwd)

    def load_variables(self, descriptor: int, *, reseed: bool) -> None:
        """Load the variables that a checkpoint sends to `descriptor`. Raise `OSError`."""
        self._lost_variables = saved_values.load(self._variables(), descriptor)
        self._threads.to_announce()  # known to the user since the session lost its threads
        if reseed:
            fork_state.reseed()

    def _variables(self) -> Variables:
        shell = self._shell
        return Variables(
            shell.variables, shell.hidden, shell.ipython, shell.event_loop.pending_tasks()
        )

    def _fork_saver(self, descriptor: int) -> None:
        saved_values.fork_saver(self._variables(), descriptor)

    def _send_hello(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Not kept: forks of this process are sessions that have lost nothing more.
        lost, self._lost_variables = self._lost_variables, []
        hello = Answer(
            pid=os.getpid(), checkpoint_pids=(*self._checkpoints,), lost_variables=(*lost,)
        )
        self._control.send_frame(hello.encode(0))

    def _handle_frame(self, frame: protocol.Frame, descriptors: list[int]) -> None:
        self._run = frame.run
        if frame.kind != protocol.SESSION_REQUEST:
            return  # the rest of a value or input that nothing waits for any more
        try:
            order = decode_packet(frame.payload, *PROCESS_ORDERS)
            if isinstance(order, _WITH_DESCRIPTOR) and not descriptors:  # the kernel dropped it
                answer = Answer(error=_NO_DESCRIPTOR)
            else:
                answer = self._execute_order(order, descriptors)
        except (ControlLost, KeyboardInterrupt):
            raise
        except Exception as error:
            answer = Answer(error=f"{type(error).__name__}: {error}")
        held, self._held_frames = self._held_frames, b""
        self._control.send_frame(held + answer.encode(frame.run))
        self._shell.run_deferred_work()

    def _execute_order(self, order: ProcessOrder, descriptors: list[int]) -> Answer:
        match order:
            case RunCode():
                return self._run_interruptible(self._run_block, order)
            case GetVariable():
                return self._run_interruptible(self._get_variable, order)
            case SetVariable():
                return self._run_interruptible(self._set_variable, order)
            case ListVariables():
                return self._run_interruptible(self._describe_variables, order)
            case CompleteCode():
                return self._run_interruptible(self._complete, order)
            case EnterFolder():
                self.enter_work_folder()
                return Answer()
            case FlushFiles():
                return self._flush_files()
            case MakeCheckpoint() | MakeRollbackCheckpoint():
                is_exact = isinstance(order, MakeCheckpoint)
                return self._make_checkpoint(descriptors[0], exact=is_exact)
            case ForkBranches():
                return self._fork_branches(descriptors[0])

    # blocks and values

    def _run_interruptible(self, work: Callable[[_Order], Answer], order: _Order) -> Answer:
        """Run `work`, which SIGINT interrupts. Add its CPU seconds to the answer.

        A child that user code has forked ends here, as it does at the end of a program.
        """
        answer: Answer
        pid = os.getpid()
        before = time.process_time() + _children_seconds()
        self._interrupted = False
        self._restore_streams()
        native_threads.restart_pools()
        helper_threads.restart_listeners()
        try:
            try:
                _set_signal(_SIGINT, self._on_interrupt)
                answer = self._work(work, order)
            finally:
                _set_signal(_SIGINT, _IGNORE)
        except KeyboardInterrupt:
            answer = Answer(exit=130, error="It was interrupted." if self._interrupted else None)
            _set_signal(_SIGINT, _IGNORE)
        except ControlLost:
            raise
        except Exception as error:
            answer = Answer(exit=1, error=f"{type(error).__name__}: {error}")
        if os.getpid() != pid:
            os._exit(answer.exit or 0)
        cpu = time.process_time() + _children_seconds() - before
        return answer._replace(interrupted=self._interrupted, cpu=max(0.0, cpu))

    def _work(self, work: Callable[[_Order], Answer], order: _Order) -> Answer:
        if self._interrupted:  # after the handler was set, but before this call
            raise KeyboardInterrupt
        return work(order)

    def _on_interrupt(self, _number: int, code: FrameType | None) -> None:
        self._interrupted = True
        self._shell.interrupted = True
        # What runs no user code must not be interrupted: its answer would be lost.
        is_ours = code is not None and code.f_code is Session._run_interruptible.__code__
        if not is_ours and not self._control.defers_interrupt(code):
            interrupt_script(code)
            raise KeyboardInterrupt

    def _on_unraisable(self, unraisable: Any) -> None:
        """Repeat an interrupt that Python dropped, as in a finalizer or right after a fork."""
        if self._interrupted and unraisable.exc_type is KeyboardInterrupt:
            _thread.start_new_thread(self._interrupt_again, (_thread.get_ident(),))
        else:
            sys.__unraisablehook__(unraisable)

    def _interrupt_again(self, thread: int) -> None:
        # In the hook, it would be dropped for good.
        while self._is_in_hook(thread):
            time.sleep(_HOOK_INTERVAL)
        if self._interrupted:  # no other block has begun
            signal.pthread_kill(thread, signal.SIGINT)

    def _is_in_hook(self, thread: int) -> bool:
        frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage] - of CPython
        while frame is not None and frame.f_code is not self._on_unraisable.__code__:
            frame = frame.f_back
        return frame is not None

    def _restore_streams(self) -> None:
        """Point descriptors 1 and 2 to the session's streams again if a block changed them."""
        for target, (stream, status) in enumerate(
            zip(self._streams, self._stream_status, strict=True), 1
        ):
            try:
                if not _is_same_file(target, status):
                    os.dup2(stream, target)
                if not os.get_blocking(stream):
                    os.set_blocking(stream, True)  # also of `target`: they share one open file
            except OSError:
                continue

    def _run_block(self, order: RunCode) -> Answer:
        self._displays.begin_block()
        self._shell.interrupted = False
        self._shell.ask = self._ask_input if order.answers_input else None
        self._shell.no_input = order.no_input or self._shell.no_input
        self._shell.show_interrupts = order.show_interrupts
        self._shell.set_colours(order.has_colours)
        self._shell.imitate_terminal(order.terminal_mode)
        library_settings.fit_to_terminal(order.columns, self._shell.ipython)
        code = self._shell.run(order.code, silent=order.is_silent, file=order.file)
        threads = self._threads.to_announce() if order.rollback_checkpoints else ()
        return Answer(exit=code, by_value=(*threads,) or None)

    def _publish(self, data: Any, metadata: Any) -> None:
        if frame := self._displays.encode(self._run, data, metadata):
            self._control.send_frame(frame)

    def _publish_last(self, data: dict[str, Any]) -> None:
        # Sent together with the answer, it wakes the server once instead of twice.
        self._held_frames += self._displays.encode_text(self._run, data["text/plain"])

    def _ask_input(self, prompt: str, hidden: bool) -> str:
        self._control.send_frame(InputQuestion(prompt, hidden).encode(self._run))
        return self._receive_data().decode(errors="replace")

    def _receive_data(self) -> bytes:
        while True:
            frame, _ = self._control.receive()
            if frame.kind == protocol.SESSION_DATA and frame.run == self._run:
                return frame.payload

    def _describe_variables(self, _order: ListVariables) -> Answer:
        found = values.describe_variables(self._shell.variables, self._shell.hidden)
        return Answer(variables=(*found,))

    def _complete(self, order: CompleteCode) -> Answer:
        start, matches = self._shell.complete(order.code, order.cursor)
        return Answer(start=start, matches=(*matches,))

    def _get_variable(self, order: GetVariable) -> Answer:
        name = order.name
        if name not in self._shell.variables:
            return Answer(error=f"The session has no variable {name!r}.", missing=True)
        kind, data = values.encode(self._shell.variables[name])
        for start in range(0, len(data), _PIECE_SIZE):
            chunk = data[start : start + _PIECE_SIZE]
            self._control.send_frame(protocol.encode(protocol.VALUE_CHUNK, self._run, chunk))
        return Answer(kind=kind)

    def _set_variable(self, order: SetVariable) -> Answer:
        data = bytearray()
        while len(data) < order.size:
            data += self._receive_data()
        value = values.decode(order.kind, bytes(data))
        self._shell.variables[order.name] = value.to_pandas() if order.kind == "frame" else value
        return Answer()

    # checkpoints and branches

    def _flush_files(self) -> Answer:
        """Write out what files buffer. Say whether a branch can only get values of variables."""
        self._capture_fork_state(flush=True)
        if self._threads.end_helpers():
            return Answer()
        threads = self._threads.predict() or fork_state.threads_of_forks()
        return Answer(by_value=(*threads,) or None)

    def _make_checkpoint(self, descriptor: int, *, exact: bool) -> Answer:
        """Fork a checkpoint that is served on `descriptor`.

        If threads would be missing in it, it restores the session by values. With `exact`, refuse
        if there is a variable that cannot be saved, or anything else that a fork cannot copy.
        """
        # Usually True, which spares a look at the name of each thread.
        single_threaded = self._threads.end_helpers()
        threads = [] if single_threaded else fork_state.python_threads()
        why = threads if threads and not value_pickler.is_available() else []
        if exact:
            why = fork_state.find_obstacles(self._checkpoints)
        if why:
            os.close(descriptor)
            return Answer(refused=(*why,))
        self._prefaulter.record_fork()
        state = self._capture_fork_state(flush=exact, excluded={descriptor})
        try:
            pid = self._fork_checkpoint(state)
        except OSError as error:
            os.close(descriptor)
            return Answer(error=_why_not_forked(error))
        if pid == 0:
            CheckpointProcess(descriptor, state, self.release, self._fork_saver).serve()
        try:
            os.setpgid(pid, pid)  # out of reach of signals to the session's process group
        except OSError:
            pass  # it was killed already
        os.close(descriptor)
        self._checkpoints.add(pid)
        if not single_threaded:
            threads += fork_state.native_threads()
        if exact and not (single_threaded or threads):
            threads = fork_state.threads_of_forks()  # no branch could be forked from it
        if threads and (why := self._why_not_saved(threads, exact=exact)):
            os.kill(pid, signal.SIGKILL)
        self._reap_checkpoints()
        self._threads.of_last_copy = threads
        if why:
            return Answer(refused=(*why,))
        return Answer(checkpoint_pids=(pid,), by_value=(*threads,) or None)

    def _why_not_saved(self, threads: list[str], *, exact: bool) -> list[str]:
        """Return what prevents a copy by values in a session with `threads`."""
        if not value_pickler.is_available():
            return threads
        if not exact:
            return []
        variables = self._variables()
        lost = [f"the variable {name}" for name in saved_values.find_unsaveable(variables)]
        lost += variables.tasks
        return [*threads, *lost] if lost else []

    def _fork_checkpoint(self, state: ForkState) -> int:
        """Fork a checkpoint and return what `os.fork` returns. Raise `OSError`."""
        has_reserve, has_reaped = len(self._checkpoints) > 1, False
        deadline = time.monotonic() + (_REAP_SECONDS if has_reserve else 0)
        while True:
            try:
                return fork_hidden(state)
            except BlockingIOError:
                if has_reaped and time.monotonic() >= deadline:
                    raise
            if has_reaped:
                time.sleep(_REAP_INTERVAL)
            # Killed children count as processes until they are reaped. The previous checkpoint is
            # being replaced, and only this process can reap it: that frees one process, soon.
            self._reap_checkpoints()
            fork_state.reap_killed_children(self._checkpoints)
            has_reaped = True

    def _capture_fork_state(self, *, flush: bool, excluded: Iterable[int] = ()) -> ForkState:
        ours = {0, 1, 2, self._control.descriptor, *self._streams}
        return ForkState(flush=flush, excluded={*ours, *excluded})

    def _reap_checkpoints(self) -> None:
        """Reap the checkpoints that the server has killed."""
        for pid in list(self._checkpoints):
            try:
                has_ended = _waitpid(pid, os.WNOHANG)[0] != 0
            except ChildProcessError:
                has_ended = True
            if has_ended:
                self._checkpoints.discard(pid)

    def _fork_branches(self, link_fd: int) -> Answer:
        self._threads.end_helpers()  # ends the threads of helpers if possible
        why = fork_state.find_obstacles(self._checkpoints)
        if why:
            os.close(link_fd)
            return Answer(refused=(*why,))
        state = self._capture_fork_state(flush=True, excluded={link_fd})
        answer = fork_branches(link_fd, state, self.release)
        return Answer(refused=(*why,)) if (why := fork_state.native_threads()) else answer

    def release(self) -> None:
        """In a checkpoint or a branch's first process: close what belongs to the session."""
        self._control.close()
        self._checkpoints.clear()

    def _become_session(self, request: BecomeSession) -> None:
        """In a new fork: continue as a separate session."""
        self._control.close()
        self._control = Control(request.control)
        self._checkpoints.clear()
        self._checkpoints |= request.checkpoints
        self._threads = MissingThreads(self._shell)
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
        with contextlib.suppress(PermissionError):  # a checkpoint already leads its own group
            os.setsid()
        request.fork_state.restore_signals_in_fork()
        request.fork_state.renew_semaphores()
        self._shell.event_loop.renew()
        before = self._cwd
        if request.streams is not None:
            self._cwd = request.folder or before
            self._move_to_branch_cell(request.streams)
            self._shell.rename_in_folder_history(before, self._cwd)
        request.fork_state.reopen_files(moved_folder=(before, self._cwd))
        if request.streams is not None:
            fork_state.reseed()
        raise_oom_score()
        if request.saved is not None:
            self.load_variables(request.saved, reseed=False)
        self._send_hello()

    def _move_to_branch_cell(self, streams: list[int]) -> None:
        """In a branch: use the streams of its cell, and drop the capabilities used to enter it.

        The bounding set is empty already.
        """
        for old, new in zip(list(self._streams), streams, strict=True):
            os.close(old)
            self._streams[self._streams.index(old)] = move_to_high_descriptor(new)
        self._stream_status = [os.fstat(stream) for stream in self._streams]
        self._restore_streams()
        syscalls.capset_call(0, 0, 0)()
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
        os.chdir(self._cwd)


def _is_same_file(descriptor: int, status: os.stat_result) -> bool:
    try:
        return os.fstat(descriptor).st_ino == status.st_ino
    except OSError:
        return False


def _why_not_forked(error: OSError) -> str:
    advice = (
        " End processes that it has started, or raise Limits.processes."
        if error.errno == errno.EAGAIN
        else ""
    )
    reason = os.strerror(error.errno or 0)
    return f"The session cannot be copied: no process could be forked ({reason}).{advice}"


def _children_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system
