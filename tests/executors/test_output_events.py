"""Output events: the first one comes at once, and short writes in a row share later ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock import CodeBlock, Output
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
