"""What the kernel installs in the session's IPython, so that it reports results as Jupyter does.

The source of this module runs inside the session, where Cellblock is not installed: it imports the
standard library and IPython only. Each report is a display with the one type `REPORT_TYPE`, which
`reports` reads on the other side.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

REPORT_TYPE = "application/vnd.cellblock.kernel+json"
ATTRIBUTE = "cellblock_kernel"  # of IPython's shell: the installed hooks
_PLACE = "This line stands before or after the code of a cell."
MAGICS = {  # that the kernel carries out, and their usage
    "checkpoint": f"%checkpoint [NAME]: save variables and files. {_PLACE}",
    "checkpoints": f"%checkpoints: list the checkpoints. {_PLACE}",
    "restore": f"%restore [NAME]: return to a checkpoint, or to the newest. {_PLACE}",
    "drop": f"%drop NAME: delete a checkpoint. {_PLACE}",
}
MAX_CELL_BYTES = 60 << 20  # of one cell's displays; the server drops the rest after 64 MiB
_SMALL = ("error", "failure", "payload", "reply")  # reports that the remaining 4 MiB are for
_MAX_PIECE = 1 << 19  # characters of a report in one display; the session drops large displays


class SessionHooks:
    """Report what the blocks of one IPython shell show, raise and ask for."""

    def __init__(self, shell: Any) -> None:
        self._shell, self._history = shell, shell.history_manager
        _name_front_end(shell)
        # Clients draw figures from data, or load plotly.js once for all of them.
        os.environ.setdefault("PLOTLY_RENDERER", "plotly_mimetype+notebook")
        self._unused_bytes, self._has_reported_error = MAX_CELL_BYTES, False
        self._send = shell.display_pub.publish  # the session's own function
        shell.display_pub.publish = self._publish
        shell.display_pub.clear_output = self._clear_output
        shell.displayhook.write_format_data = self._show_result
        shell._showtraceback = self._show_traceback
        shell.set_next_input = self._set_next_input
        shell.ask_exit = sys.exit  # called by the `exit` that `%reset` brings back
        _install_pager()
        # A handler also makes the session run all blocks through IPython.
        shell.events.register("pre_run_cell", self._before_cell)
        shell.events.register("post_run_cell", self._after_cell)
        for name, usage in MAGICS.items():
            shell.register_magic_function(_misplaced(usage), magic_name=name)

    def set_count(self, count: int) -> None:
        """Number the next cell `count`."""
        self._shell.execution_count = count

    def report_inputs(self) -> None:
        """Reply with the number of entries of `In`."""
        self._report("reply", {"data": {"inputs": len(self._history.input_hist_parsed)}})

    def add_inputs(self, cells: list[tuple[int, str]]) -> None:
        """Add cells, such as those that have ended the process, to the history."""
        history = self._history
        for number, code in cells:
            history.store_inputs(number, code)
            if len(history.input_hist_parsed) == number:  # IPython leaves out `exit`
                history.input_hist_parsed.append(code)
                history.input_hist_raw.append(code)

    def run_without_history(self, code: str) -> None:
        """Run a cell that is not counted."""
        error = self._shell.run_cell(code, store_history=False)
        if error.error_before_exec or error.error_in_exec:
            raise SystemExit(1)

    def inspect(self, code: str, cursor: int, level: int) -> None:
        """Reply with information about the name at `cursor`; an empty bundle means none."""
        from IPython.utils.tokenutil import token_at_cursor

        name = token_at_cursor(code, cursor)
        try:
            data = self._shell.object_inspect_mime(name, detail_level=level)
        except KeyError:
            data = {}
        self._report("reply", {"data": data})

    def evaluate(self, expressions: dict[str, str]) -> None:
        """Reply with the values of `user_expressions`."""
        self._report("reply", {"data": self._shell.user_expressions(expressions)})

    def _report(self, kind: str, content: dict[str, Any]) -> None:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                continue  # user code has replaced the stream
        text = json.dumps([kind, content], default=_to_json, ensure_ascii=False)
        self._unused_bytes -= len(json.dumps(text))
        if self._unused_bytes < 0 and kind not in _SMALL:
            sys.stderr.write(
                f"A display was dropped: a cell can display {MAX_CELL_BYTES >> 20} MiB in all.\n"
            )
            return
        for start in range(0, len(text), _MAX_PIECE):
            end = start + _MAX_PIECE
            self._send({REPORT_TYPE: {"text": text[start:end], "last": end >= len(text)}})

    def _publish(self, data: Any, metadata: Any = None, *_others: Any, **options: Any) -> None:
        kind = "update_display_data" if options.get("update") else "display_data"
        content = {"data": data, "metadata": metadata, "transient": options.get("transient")}
        self._report(kind, {name: value or {} for name, value in content.items()})

    def _clear_output(self, wait: bool = False) -> None:
        self._report("clear_output", {"wait": bool(wait)})

    def _show_result(self, format_dict: Any, md_dict: Any = None) -> None:
        self._report("execute_result", {"data": format_dict, "metadata": md_dict or {}})

    def _show_traceback(self, etype: Any, evalue: Any, stb: Any) -> None:
        self._has_reported_error = True
        self._report("error", _describe(etype, evalue, [str(line) for line in stb]))

    def _set_next_input(self, s: str, replace: bool = False) -> None:
        self._shell.payload_manager.write_payload(
            {"source": "set_next_input", "text": s, "replace": bool(replace)}
        )

    def _before_cell(self, _info: Any) -> None:
        self._unused_bytes, self._has_reported_error = MAX_CELL_BYTES, False

    def _after_cell(self, result: Any) -> None:
        error = result.error_before_exec or result.error_in_exec
        if isinstance(error, SystemExit):  # the session shows no traceback of it
            text = f"SystemExit: {_text(error)}"
            self._report("error", _describe(SystemExit, error, [text]))
        elif error is not None and not self._has_reported_error:
            # IPython has written its text to stderr, as it does for exception groups.
            self._report("failure", _describe(type(error), error, []))
        payload = self._shell.payload_manager.read_payload()
        self._shell.payload_manager.clear_payload()
        if payload:
            self._report("payload", {"payload": payload})


def _name_front_end(shell: Any) -> None:
    """Name the shell's class as ipykernel does: libraries that find this name show HTML."""
    kind: Any = shell.__class__

    class ZMQInteractiveShell(kind):
        __module__ = "ipykernel.zmqshell"

    shell.__class__ = ZMQInteractiveShell


def _install_pager() -> None:
    """Show the text of `name?` in the client's pager."""
    from IPython.core import page, payloadpage

    page.page = payloadpage.page  # pyright: ignore[reportUnknownMemberType] - untyped


def _misplaced(usage: str) -> Any:
    """Return a magic that refuses a line of the kernel in the middle of a cell."""

    def refuse(_line: str) -> None:
        from IPython.core.error import UsageError

        raise UsageError("This line must stand before or after the code of a cell.")

    refuse.__doc__ = usage
    return refuse


def _describe(kind: Any, error: Any, lines: list[str]) -> dict[str, Any]:
    name = getattr(kind, "__name__", str(kind))
    return {"ename": name, "evalue": _text(error), "traceback": lines}


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__} without text>"


def _to_json(value: object) -> object:
    """Return bytes as base64, their form in a MIME bundle, and anything else as text."""
    import base64

    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return _text(value)


def install(shell: Any, count: int) -> None:
    """Install the hooks, unless they are installed, and number the next cell `count`.

    Reply with the number of entries of `In`.
    """
    hooks = getattr(shell, ATTRIBUTE, None)
    if hooks is None:
        hooks = SessionHooks(shell)
        object.__setattr__(shell, ATTRIBUTE, hooks)
    hooks.set_count(count)
    hooks.report_inputs()
