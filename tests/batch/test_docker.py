"""Batches in containers."""

from __future__ import annotations

import pytest

from cellblock import DockerCommandLineCodeExecutor
from cellblock.batch import JudgeLimits, Program
from tests.batch.runs import judge_all
from tests.containers import docker_engine

pytestmark = pytest.mark.engine


def test_programs_in_containers_see_nothing_of_earlier_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = docker_engine.use_shared_engine(monkeypatch, "python")
    leave = "for folder in ('.', '/tmp'): open(folder + '/left', 'w').close()"
    look = "import os; print([os.path.exists(f + '/left') for f in ('.', '/tmp')])"
    programs = [
        Program(id="leaves", code=leave),
        Program(id="looks", code=look),
        Program(id="waits", code="import time; time.sleep(600)"),
    ]
    verdicts = judge_all(
        programs,
        executor=DockerCommandLineCodeExecutor(image),
        concurrency=1,
        limits=JudgeLimits(wall_seconds=5),
    )
    assert [verdict.outcome for verdict in verdicts] == ["passed", "passed", "timeout"]
    assert verdicts[1].output == "[False, False]\n"
