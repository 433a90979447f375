"""Run the Python blocks of one page in one namespace, and print as JSON what each of them printed.

    python run_page.py PAGE < blocks.json

The blocks keep their line numbers, so that tracebacks and `inspect.getsource` lead to the page.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import sys


def run_page(page: str, blocks: list[tuple[int, str]]) -> list[str]:
    """Run `blocks`, pairs of line number and code; return their outputs."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    outputs: list[str] = []
    with asyncio.Runner() as runner:
        for line, code in blocks:
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            program = compile("\n" * line + code, page, "exec", flags, dont_inherit=True)
            with contextlib.redirect_stdout(io.StringIO()) as output:
                if program.co_flags & inspect.CO_COROUTINE:
                    runner.run(eval(program, namespace))
                else:
                    exec(program, namespace)
            outputs.append(output.getvalue())
    return outputs


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run_page(sys.argv[1], json.load(sys.stdin))))
