"""Without control groups, the kernel counts the processes of each tenant of a server apart."""

from __future__ import annotations

import asyncio

import pytest

from cellblock import Limits, Policy
from cellblock.backends.sandbox import SandboxBackend
from cellblock.runtime.spec import ServerSpec
from cellblock.sandbox import cgroups
from cellblock.sandbox.probe import counts_processes_by_namespace
from tests.backends.test_shared_server import run, server_of, tenant, two_tenants, wait_until

pytestmark = pytest.mark.depends_on_user


@pytest.fixture(autouse=True)
def _no_control_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "find_cgroups", lambda: cgroups.CgroupSupport(0, "none in a test"))


# Starts as many processes as it may, and ends when the file `done` exists.
FORK_BOMB = """
import os, time
try:
    while os.fork():
        pass
    time.sleep(3600)
except OSError as error:
    print(error.strerror)
open("full", "w").close()
while not os.path.exists("done"):
    time.sleep(0.01)
"""
FORK = "import os; print([os.fork() or os._exit(0) for _ in range(9)] and 'forked')"


@pytest.mark.skipif(not counts_processes_by_namespace(), reason="needs Linux 5.14")
@pytest.mark.parametrize("is_separate", [True, False])
async def test_fork_bomb_leaves_the_processes_of_other_tenants(
    is_separate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_own_users(backend: SandboxBackend, spec: ServerSpec) -> ServerSpec:
        spec = original(backend, spec)
        return spec._replace(zygote=spec.zygote._replace(own_users=False))

    original = SandboxBackend._with_role
    if not is_separate:
        monkeypatch.setattr(SandboxBackend, "_with_role", without_own_users)

    policy = Policy(environment={"SEPARATE": str(is_separate)})
    async with two_tenants(policy=policy, limits=Limits(processes=40)) as (one, other):
        assert (await run(other, FORK)).output == "forked\n"
        bombing = asyncio.ensure_future(run(one, FORK_BOMB))
        await wait_until("nothing is forked", (one.work_dir / "full").exists)
        has_forked = (await run(other, FORK)).output == "forked\n"
        assert has_forked is is_separate, "it forks without its own users, and not with them"
        (one.work_dir / "done").touch()
        assert (await bombing).output == "Resource temporarily unavailable\n"


@pytest.mark.parametrize(("release", "do_share"), [("5.13.19-1", False), ("5.14.0", True)])
async def test_executors_share_a_server_where_the_kernel_counts_their_processes_apart(
    release: str, do_share: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.release", lambda: release)

    async with tenant() as one, tenant() as other:
        assert (server_of(one) == server_of(other)) is do_share
