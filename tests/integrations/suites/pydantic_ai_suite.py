"""Pydantic AI's public suite for workspaces, on a sandbox of Cellblock."""

# It runs where Pydantic AI is installed.
# pyright: basic, reportMissingImports=false, reportOptionalMemberAccess=false

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from pydantic_ai.workspaces import WorkspaceRef
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from cellblock import Sandbox
from cellblock.integrations.pydantic_ai import CellblockWorkspace


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as sandbox:
        yield sandbox


class TestWorkspace(WorkspaceBackendSuite):
    @pytest.fixture
    def backend(self, sandbox: Sandbox) -> CellblockWorkspace:
        return CellblockWorkspace(sandbox)

    @pytest.fixture
    async def fresh_backend(self) -> AsyncIterator[Callable[[], CellblockWorkspace]]:
        made: list[CellblockWorkspace] = []

        def make() -> CellblockWorkspace:
            made.append(CellblockWorkspace(Sandbox()))
            return made[-1]

        yield make
        for workspace in made:
            await workspace.sandbox.close()

    @pytest.fixture
    def attach_backend(self) -> Callable[[WorkspaceRef], CellblockWorkspace]:
        return CellblockWorkspace.attach

    @pytest.fixture
    def destroy_environment(self) -> Callable[[CellblockWorkspace], Awaitable[None]]:
        return lambda workspace: workspace.sandbox.close()
