"""What is kept of code whose executor fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cellblock import CancellationToken, CodeBlock, SessionError
from cellblock.cli.chat.code_turn import CodeTurn
from cellblock.cli.chat.transcripts.entries import RunEntry, model_message
from cellblock.cli.chat.transcripts.transcript import Transcript
from cellblock.cli.own_files import OwnFiles
from tests.cli.chat.chat_parts import chat_output, session


@pytest.mark.usefixtures("sandbox")
def test_the_transcript_says_that_the_executor_failed(tmp_path: Path) -> None:
    transcript = Transcript(None)
    asyncio.run(run_in_ended_session(str(tmp_path / "work"), transcript))
    (entry,) = transcript.entries
    assert isinstance(entry, RunEntry)
    assert entry.blocks[0].outcome == "error"
    assert "The session ended" in str(model_message(entry, has_vision=False).content)


async def run_in_ended_session(folder: str, transcript: Transcript) -> None:
    executor = session(folder)
    async with executor:
        pass  # a live executor must be started again after `async with`
    turn = CodeTurn(executor, folder, transcript, chat_output(folder), OwnFiles(folder))
    with pytest.raises(SessionError):
        await turn.execute_code_blocks([CodeBlock("print(1)\n", "python")], CancellationToken())
