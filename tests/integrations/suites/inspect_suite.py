"""Inspect's checks of a sandbox provider, on the sandboxes of Cellblock."""

# It runs where Inspect is installed.
# pyright: basic, reportMissingImports=false, reportWildcardImportFromLibrary=false

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from inspect_ai.util._sandbox.self_check import *  # noqa: F403 - the checks are the tests here

from cellblock.sandbox.probe import find_sub_ids

# They need other users in the sandbox.
NEED_ROOT = {"test_exec_as_user"}


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[SandboxEnvironment]:
    provider = registry_find_sandboxenv("cellblock")  # by its entry point
    environments = await provider.sample_init("self_check", None, {})
    yield environments["default"]
    await provider.sample_cleanup("self_check", None, environments, False)


@pytest.fixture
def sandbox_env(shared: SandboxEnvironment, request: pytest.FixtureRequest) -> SandboxEnvironment:
    if request.node.originalname in NEED_ROOT and isinstance(find_sub_ids(), str):
        request.applymarker(pytest.mark.xfail(strict=True))
    return shared
