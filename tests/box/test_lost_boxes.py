"""A box whose server or container is lost is gone: running calls and later ones say so."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
from collections.abc import Callable

import pytest

from cellblock import BoxGone, DockerSandbox, Sandbox
from cellblock.box.base import Box
from tests.containers import docker_engine
from tests.executors.session import session_image


async def lose(box: Box, kill: Callable[[], object]) -> list[str]:
    """Kill the server of `box` while it is used in several ways. Return what is raised."""
    code = "import time\nopen('block', 'w').close()\ntime.sleep(600)"
    process = await box.spawn("cat")
    running = [
        asyncio.ensure_future(box.exec("touch command; sleep 600", timeout=None)),
        asyncio.ensure_future(box.run_code(code, timeout=600)),
        asyncio.ensure_future(process.wait()),
    ]
    while not (await box.files.exists("command") and await box.files.exists("block")):
        await asyncio.sleep(0.02)
    kill()
    raised = list[str]()
    for each in running:
        with pytest.raises(BoxGone) as caught:
            await each
        raised.append(str(caught.value))
    for use in (box.exec("true"), box.files.list(), box.run_code("1"), box.fork()):
        with pytest.raises(BoxGone) as caught:
            await use
        raised.append(str(caught.value))
    assert box.closed
    return raised


@pytest.mark.usefixtures("needs_sandbox")
async def test_a_box_whose_server_is_killed_is_gone() -> None:
    async with Sandbox() as box:
        connection = box.session.place.require_connection()
        raised = await lose(box, lambda: os.kill(connection.pid, signal.SIGKILL))
    assert {text for text in raised if "server ended unexpectedly" not in text} == set()
    await box.close()


@pytest.mark.engine
async def test_a_box_whose_container_is_killed_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    image = session_image.use_session_image(monkeypatch)
    async with DockerSandbox(image) as box:
        name = box.container
        assert name is not None
        engine = docker_engine.shared_engine()
        raised = await lose(box, functools.partial(engine.docker, "kill", name))
    assert {text for text in raised if "The box is gone" not in text} == set()


@pytest.mark.engine
@pytest.mark.slow
async def test_a_box_whose_container_does_not_answer_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = session_image.use_session_image(monkeypatch)
    async with DockerSandbox(image) as box:
        name = box.container
        assert name is not None
        engine = docker_engine.shared_engine()
        await box.exec("true")
        engine.docker("pause", name)
        try:
            with pytest.raises(BoxGone, match="did not answer"):
                await box.exec("true")
        finally:
            engine.docker("unpause", name)
