"""Record the conversations of examples again, with the answers that they have.

    python -m tests.examples.record coder_and_executor self_repair

Needed after a change of a prompt, of a request, or of what the code prints. The code runs in the
sandbox. If the answers no longer fit, change them in `examples/cassettes/` first.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import cast

from cellblock.models import (
    CassetteChatCompletionClient,
    ChatCompletionClient,
    ModelInfo,
    ReplayChatCompletionClient,
)
from cellblock.models.cassette_file import CassetteFile

EXAMPLES = Path(__file__).parents[2] / "examples"


def record(name: str) -> None:
    """Run the example `name`, and replace its cassette."""
    path = EXAMPLES / "cassettes" / f"{name}.json"
    old, new = CassetteFile.read(path), path.with_suffix(".new")
    new.unlink(missing_ok=True)
    answers = [turn.answer.result for turn in old.turns]
    scripted = ReplayChatCompletionClient(answers, cast(ModelInfo, old.model_info))
    options = import_module("settings")
    client = CassetteChatCompletionClient(new, scripted, normalize=options.FILE_NAMES)

    def model_client(_settings: object) -> ChatCompletionClient:
        return client

    options.Settings.model_client = model_client
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        running = import_module(name).main(options.Settings(name))
        if inspect.iscoroutine(running):
            asyncio.run(running)
    if len(scripted.create_calls) < len(answers):
        sys.exit(f"{name}: {len(answers) - len(scripted.create_calls)} answers were not used.")
    new.replace(path)


if __name__ == "__main__":
    sys.path.insert(0, str(EXAMPLES))
    for example in sys.argv[1:]:
        record(example)
