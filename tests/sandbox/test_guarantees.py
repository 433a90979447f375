"""What is guaranteed on this machine, and what happens where the full sandbox is forbidden."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cellblock import Limits, Policy, SandboxCommandLineCodeExecutor
from cellblock.sandbox.cgroups import CgroupSupport
from cellblock.sandbox.guarantees import Guarantee, Isolation, host_guarantees, sandbox_guarantees
from cellblock.sandbox.probe import Findings, probe, unavailable_reason
from cellblock.sandbox.setup import namespaces

pytestmark = pytest.mark.depends_on_user

PROPERTIES = ["files", "network", "processes", "memory", "cpu", "disk", "kernel surface", "secrets"]
ALL_WORKS = Findings(
    namespaces="",
    seccomp="",
    landlock="",
    landlock_abi=7,
    cgroups=CgroupSupport(2, memory="/x", processes="/x", cpu_time="/x"),
)
NOTHING_WORKS = Findings(
    namespaces="unshare: Operation not permitted",
    seccomp="seccomp: Invalid argument",
    landlock="this kernel has no Landlock",
    landlock_abi=0,
    cgroups=CgroupSupport(0, "no memory controller is mounted"),
)
FULL_LIMITS = replace(
    Limits.unlimited(),
    memory_bytes=8 << 20,
    processes=2,
    cpu_seconds=1,
    file_bytes=1,
    written_bytes=1,
)

# Runs the program in its argument in a process that cannot build a sandbox, as in a container whose
# own filter forbids namespaces.
CONTAINED = """
import sys
from cellblock.runtime.cell.confinement import Confinement
from cellblock.runtime.spec import ConfinementSpec
from cellblock.sandbox import seccomp
confinement = Confinement(ConfinementSpec(filter_program=seccomp.program(), drop=True))
confinement.prepare()
confinement.apply()
exec(sys.argv[1])
"""
# The same for one call, which a container may refuse although it allows all namespaces.
WITHOUT_CALL = CONTAINED.replace(
    "seccomp.program(), drop=True", "seccomp._assemble({call!r}, {{}}, lambda _: [])"
)
RUN = """
import asyncio
from cellblock import CodeBlock, SandboxCommandLineCodeExecutor, SandboxUnavailable
async def main():
    try:
        async with SandboxCommandLineCodeExecutor(isolation={isolation!r}) as executor:
            result = await executor.execute_code_blocks([CodeBlock("print('ran')", "python")])
            print(result.output)
    except SandboxUnavailable as error:
        print("unavailable:", error)
asyncio.run(main())
"""


def levels(guarantees: tuple[Guarantee, ...]) -> dict[str, str]:
    return {item.property: item.level for item in guarantees}


def run_in_container_filter(program: str, how: str = CONTAINED, wrapper: Sequence[str] = ()) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    argv = [*wrapper, sys.executable, "-c", how, program]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_every_executor_names_every_property_once() -> None:
    for isolation in ("full", "landlock"):
        for found in (ALL_WORKS, NOTHING_WORKS):
            guarantees = sandbox_guarantees(found, FULL_LIMITS, Policy(), isolation)
            assert [item.property for item in guarantees] == PROPERTIES
    assert sorted(levels(host_guarantees(ALL_WORKS, Limits.unlimited()))) == sorted(PROPERTIES)


def test_levels_depend_on_the_machine_the_policy_and_the_limits() -> None:
    def found(*given: Any) -> dict[str, str]:
        return levels(sandbox_guarantees(*given))

    everything = {**dict.fromkeys(PROPERTIES, "enforced"), "disk": "partly"}
    full = found(ALL_WORKS, FULL_LIMITS, Policy())
    assert full == everything
    host = found(ALL_WORKS, FULL_LIMITS, Policy(network="host"))
    assert host == {**everything, "network": "given by policy"}
    outside_the_home = found(ALL_WORKS, FULL_LIMITS, Policy(read_only=["/opt/data"]))
    assert outside_the_home["secrets"] == outside_the_home["files"] == "enforced"
    without_limits = found(ALL_WORKS, Limits.unlimited(), Policy())
    assert without_limits["memory"] == without_limits["disk"] == "off"
    weaker = found(ALL_WORKS, FULL_LIMITS, Policy(), "landlock")
    less = {name for name in PROPERTIES if full[name] != weaker[name]}
    assert less == {"files", "processes", "secrets"}


def test_nothing_is_guaranteed_where_nothing_works() -> None:
    for isolation in ("full", "landlock"):
        guarantees = sandbox_guarantees(NOTHING_WORKS, FULL_LIMITS, Policy(), isolation)
        protections = ["files", "processes", "kernel surface", "secrets"]
        assert {levels(guarantees)[name] for name in protections} == {"not possible here"}
        assert all(item.advice for item in guarantees if item.level != "enforced")


@pytest.mark.parametrize("isolation", ["full", "landlock"])
def test_what_a_policy_gives_is_named(isolation: Isolation, tmp_path: Path) -> None:
    policy = Policy(
        network="host",
        read_only=[Path.home(), "/data"],
        read_write=[tmp_path],
        environment={"TOKEN": "s3cret"},
    )
    found = {
        item.property: item
        for item in sandbox_guarantees(ALL_WORKS, FULL_LIMITS, policy, isolation)
    }
    assert f"your policy gives {Path.home()} (read-only), /data (read-only)" in (
        found["files"].mechanism
    )
    assert f"{tmp_path} (writable)" in found["files"].mechanism
    assert found["secrets"].level == found["network"].level == "given by policy"
    assert f"the variable TOKEN, {Path.home()};" in found["secrets"].mechanism
    assert "s3cret" not in str(found)


def test_they_say_whether_startup_files_are_read_only() -> None:
    cases: list[tuple[Policy, Isolation, str]] = [
        (Policy(), "full", "startup files at the top of your work folder are read-only"),
        (Policy(protect_startup_files=False), "full", "lets blocks change startup files"),
        (Policy(), "landlock", "startup files can be changed"),
    ]
    for policy, isolation, words in cases:
        found = sandbox_guarantees(ALL_WORKS, FULL_LIMITS, policy, isolation)
        assert words in found[0].mechanism


def test_work_folder_in_memory_is_named() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as in_memory:
        (work := Path(in_memory) / "work").mkdir()
        found = SandboxCommandLineCodeExecutor(work_dir=work).guarantees()
    (disk,) = (item.mechanism for item in found if item.property == "disk")
    assert "the work folder is in memory (tmpfs): what its files hold counts" in disk
    on_disk = sandbox_guarantees(NOTHING_WORKS, FULL_LIMITS, Policy())
    assert not any("the work folder is in memory" in item.mechanism for item in on_disk)
    uncounted = sandbox_guarantees(NOTHING_WORKS, FULL_LIMITS, Policy(), in_memory=True)
    assert "Use a work_dir on a disk" in next(
        item.advice for item in uncounted if item.property == "disk"
    )


def test_delegation_is_advised_before_root() -> None:
    (advice,) = {
        item.advice
        for item in sandbox_guarantees(NOTHING_WORKS, FULL_LIMITS, Policy())
        if item.property == "memory"
    }
    assert 0 < advice.index("systemd-run") < advice.index("root")


def test_this_machine_supports_what_the_other_tests_need() -> None:
    assert unavailable_reason() == ""
    assert probe().namespaces == ""
    found = levels(SandboxCommandLineCodeExecutor().guarantees())
    assert found["files"] == found["network"] == found["kernel surface"] == "enforced"


def test_guarantees_are_json() -> None:
    text = json.dumps([item.to_dict() for item in SandboxCommandLineCodeExecutor().guarantees()])
    assert [item["property"] for item in json.loads(text)] == PROPERTIES


def test_start_fails_with_a_report_where_namespaces_are_forbidden() -> None:
    output = run_in_container_filter(RUN.format(isolation="full"))
    assert output.startswith("unavailable: The sandbox cannot be started on this machine."), output
    assert "unshare" in output
    assert "cellblock doctor" in output
    assert "isolation='landlock'" in output


@pytest.mark.parametrize("call", ["pivot_root", "sethostname"])
def test_probe_finds_calls_that_a_container_refuses(call: str) -> None:
    program = "from cellblock.sandbox import probe; print(probe.probe().namespaces)"
    numbers = {"pivot_root": (155, 41), "sethostname": (170, 161)}[call]  # on x86_64 and aarch64
    assert f"{call}: Operation not permitted" in run_in_container_filter(
        program, WITHOUT_CALL.format(call={call: numbers}), ["setpriv", "--no-new-privs"]
    )
    assert run_in_container_filter(program, "import sys; exec(sys.argv[1])") == "\n"


@pytest.mark.skipif(not namespaces.can_use_outer_users(), reason="not root")
def test_root_that_cannot_map_users_is_told_what_to_do() -> None:
    without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    output = run_in_container_filter(
        RUN.format(isolation="full"), "import sys; exec(sys.argv[1])", without
    )
    assert "root cannot map users here" in output
    assert "run as an unprivileged user" in output


def test_landlock_sandbox_runs_there_when_it_is_chosen() -> None:
    assert run_in_container_filter(RUN.format(isolation="landlock")) == "ran\n\n"
