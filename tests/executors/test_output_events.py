"""Output events: the first one comes at once, and short writes in a row share later ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock import CodeBlock, Display, Output
from cellblock.sync import SandboxCommandLineCodeExecutor, SandboxSessionCodeExecutor

LINES = 1000
CODE = f"""
import os, sys, time
print("first", flush=True)
while not os.path.exists("go"):
    time.sleep(0.001)
for number in range({LINES}):
    print(number, flush=True)
print("note", file=sys.stderr, flush=True)
print("last", flush=True)
"""


@pytest.mark.parametrize("kind", [SandboxCommandLineCodeExecutor, SandboxSessionCodeExecutor])
def test_short_writes_share_events_and_keep_their_order(
    kind: type[SandboxCommandLineCodeExecutor], tmp_path: Path
) -> None:
    found = list[Output]()
    with kind(work_dir=tmp_path) as executor:
        for event in executor.execute_stream([CodeBlock(CODE, "python")]):
            if isinstance(event, Output):
                found.append(event)
                (tmp_path / "go").touch()  # the block waits until its first output has arrived
    numbers = "".join(f"{number}\n" for number in range(LINES))
    assert "".join(event.text for event in found) == f"first\n{numbers}note\nlast\n"
    assert "".join(event.text for event in found if event.stream == "stderr") == "note\n"
    assert len(found) < LINES / 5


def test_a_display_comes_after_what_was_written_before_it(tmp_path: Path) -> None:
    code = "for number in range(50): display(f'{number};')\n'last;'"
    text, seen = "", list[str]()
    with SandboxSessionCodeExecutor(work_dir=tmp_path) as executor:
        for event in executor.execute_stream([CodeBlock(code, "python")]):
            if isinstance(event, Output):
                text += event.text
            elif isinstance(event, Display):
                seen.append(event.data["text/plain"])
                assert text.startswith("".join(f"{each}\n" for each in seen))
    assert len(seen) == 51
