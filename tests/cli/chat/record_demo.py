"""Record the conversation of `cellblock chat --demo` anew: python -m tests.cli.chat.record_demo

The answers are written by hand; their code really runs, and what it prints goes into the recording.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import nullcontext
from typing import Any

from cellblock import CancellationToken
from cellblock.cli.chat.approval.approver import Approver
from cellblock.cli.chat.code_turn import CodeTurn
from cellblock.cli.chat.conversation import Conversation
from cellblock.cli.chat.demo import CASSETTE, DEMO_TASK, NORMALIZE
from cellblock.cli.chat.model.chat_model import ChatModel
from cellblock.cli.chat.transcripts.transcript import Transcript
from cellblock.cli.own_files import OwnFiles
from cellblock.models import (
    CassetteChatCompletionClient,
    CreateResult,
    LLMMessage,
    ReplayChatCompletionClient,
    RequestUsage,
)
from cellblock.models.token_estimate import estimate_tokens
from tests.cli.chat.chat_parts import chat_output, session

ANSWERS = (
    """I throw the dice first, and print each sum with its share and the share that theory expects.

```python
import random
from collections import Counter

random.seed(2)
THROWS = 100_000
throws = ([random.randint(1, 6), random.randint(1, 6)] for _ in range(THROWS))
counts = Counter(map(sum, throws))

print("sum    seen  theory")
for total, count in sorted(counts):
    expected = (6 - abs(total - 7)) / 36
    print(f"{total:3}  {count / THROWS:6.2%}  {expected:6.2%}")
```
""",
    """`sorted(counts)` yields the sums alone. I need pairs, that is `counts.items()`. The variables
are still there, so the dice need not be thrown again.

```python
import time

print("sum    seen  theory")
for total, count in sorted(counts.items()):
    expected = (6 - abs(total - 7)) / 36
    bar = "#" * round(count / THROWS * 200)
    print(f"{total:3}  {count / THROWS:6.2%}  {expected:6.2%}  {bar}")
    time.sleep(0.1)
```
""",
    """All eleven sums are within half a percent of theory. Now the Mandelbrot set: I write the PNG
file by hand, with `zlib` and `struct`.

```python
import struct, zlib

WIDTH, HEIGHT, STEPS = 360, 240, 60


def escape_time(c: complex) -> int:
    z = 0j
    for step in range(STEPS):
        z = z * z + c
        if abs(z) > 2:
            return step
    return STEPS


def colour(steps: int) -> bytes:
    if steps == STEPS:
        return bytes(3)
    share = steps / STEPS
    red, green, blue = 255 * share**0.5, 255 * share, 90 + 165 * share
    return bytes([int(red), int(green), int(blue)])


def chunk(kind: bytes, data: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + check


rows = []
for y in range(HEIGHT):
    row = b"\\0"
    for x in range(WIDTH):
        c = complex(3 * x / WIDTH - 2.2, 2 * y / HEIGHT - 1)
        row += colour(escape_time(c))
    rows.append(row)
    if y % 60 == 59:
        print(f"{y + 1} of {HEIGHT} rows", flush=True)

with open("mandelbrot.png", "wb") as file:
    file.write(b"\\x89PNG\\r\\n\\x1a\\n")
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    file.write(chunk(b"IHDR", header))
    file.write(chunk(b"IDAT", zlib.compress(b"".join(rows))))
    file.write(chunk(b"IEND", b""))
```

```sh
ls mandelbrot.png && head -c 4 mandelbrot.png | tail -c 3
```
""",
    """Both are done:

- **Dice**: in 100 000 throws each sum came up as often as theory expects, to within half a percent.
  The most frequent sum is 7, with a share of about one sixth.
- **Mandelbrot set**: the picture is in `mandelbrot.png`, 360 by 240 pixels.
""",
)


class ScriptedClient(ReplayChatCompletionClient):
    """Returns its answers in pieces as long as a model's."""

    async def create_stream(
        self, messages: Sequence[LLMMessage], **arguments: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        result = await self.create(messages, **arguments)
        assert isinstance(result.content, str)
        pieces = re.findall(r"\S{1,12}[ \n]*|\s+", result.content)
        for piece in pieces:
            yield piece
        usage = RequestUsage(estimate_tokens(messages), len(pieces))
        yield result.model_copy(update={"usage": usage, "cached": False})


async def record() -> None:
    """Write the cassette."""
    CASSETTE.unlink(missing_ok=True)
    client = CassetteChatCompletionClient(CASSETTE, ScriptedClient(ANSWERS), normalize=NORMALIZE)
    with tempfile.TemporaryDirectory() as folder:
        output, transcript = chat_output(folder), Transcript(None)
        async with session(folder) as executor:
            conversation = Conversation(
                model=ChatModel(client, "You solve the user's tasks.", output),
                code=CodeTurn(executor, folder, transcript, output, OwnFiles(folder)),
                approver=Approver("never", None),
                transcript=transcript,
                output=output,
                max_turns=10,
                interruptible=lambda: nullcontext(CancellationToken()),
            )
            assert await conversation.answer(DEMO_TASK) is None
        assert "mandelbrot.png" in os.listdir(folder)


if __name__ == "__main__":
    asyncio.run(record())
