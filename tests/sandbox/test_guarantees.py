"""What is guaranteed, found by trying; and what happens where the full sandbox is forbidden."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from cellblock import Limits, Policy, SandboxCommandLineCodeExecutor
from cellblock.sandbox.cgroups import Found
from cellblock.sandbox.guarantees import Guarantee, host_guarantees, sandbox_guarantees
from cellblock.sandbox.probe import Findings, probe, unavailable
from cellblock.sandbox.setup import namespaces

PROPERTIES = ["files", "network", "processes", "memory", "cpu", "disk", "kernel surface", "secrets"]
ALL_WORKS = Findings(
    namespaces="",
    seccomp="",
    landlock="",
    landlock_abi=7,
    groups=Found(2, memory="/x", processes="/x", time="/x"),
)
NOTHING_WORKS = Findings(
    namespaces="unshare: Operation not permitted",
    seccomp="seccomp: Invalid argument",
    landlock="this kernel has no Landlock",
    landlock_abi=0,
    groups=Found(0, "no memory controller is mounted"),
)
FULL_LIMITS = Limits(memory_bytes=1, processes=1, cpu_seconds=1, file_bytes=1, written_bytes=1)

# Runs the program in its argument after this process has lost all that a sandbox is made from, as in a container
# whose own filter forbids namespaces.
CONTAINED = """
import sys
from cellblock.runtime.cell.confinement import Confinement
from cellblock.sandbox import seccomp
confinement = Confinement(filter_program=seccomp.program(), drop=True)
confinement.prepare()
confinement.apply()
exec(sys.argv[1])
"""
# The same for one call, which a container may refuse where it allows all namespaces.
WITHOUT_CALL = CONTAINED.replace(
    "seccomp.program(), drop=True", "seccomp._assemble({call!r}, {{}}, lambda _: [])"
)
RUN = """
import asyncio
from cellblock import CodeBlock, SandboxCommandLineCodeExecutor, SandboxUnavailable
async def main():
    try:
        async with SandboxCommandLineCodeExecutor(isolation={isolation!r}) as executor:
            print((await executor.execute_code_blocks([CodeBlock("print('ran')", "python")])).output)
    except SandboxUnavailable as error:
        print("unavailable:", error)
asyncio.run(main())
"""


def levels(guarantees: tuple[Guarantee, ...]) -> dict[str, str]:
    return {item.property: item.level for item in guarantees}


def contained(program: str, how: str = CONTAINED, wrapper: Sequence[str] = ()) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    argv = [*wrapper, sys.executable, "-c", how, program]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_every_property_is_named_once_by_every_executor() -> None:
    for isolation in ("full", "landlock"):
        for found in (ALL_WORKS, NOTHING_WORKS):
            given = sandbox_guarantees(found, FULL_LIMITS, Policy(), isolation)
            assert [item.property for item in given] == PROPERTIES
    assert sorted(levels(host_guarantees(ALL_WORKS, Limits()))) == sorted(PROPERTIES)


def test_all_is_enforced_where_all_works_but_the_sum_of_writes() -> None:
    found = levels(sandbox_guarantees(ALL_WORKS, FULL_LIMITS, Policy()))
    assert found == {**dict.fromkeys(PROPERTIES, "enforced"), "disk": "partly"}


def test_nothing_is_claimed_where_nothing_works() -> None:
    for isolation in ("full", "landlock"):
        given = sandbox_guarantees(NOTHING_WORKS, FULL_LIMITS, Policy(), isolation)
        walls = ["files", "processes", "kernel surface", "secrets"]
        assert {levels(given)[name] for name in walls} == {"not possible here"}
        assert all(item.advice for item in given if item.level != "enforced")


def test_the_hosts_network_is_no_enforcement() -> None:
    given = sandbox_guarantees(ALL_WORKS, FULL_LIMITS, Policy(network="host"))
    assert levels(given)["network"] == "not possible here"


def test_the_weaker_level_claims_less() -> None:
    full = levels(sandbox_guarantees(ALL_WORKS, FULL_LIMITS, Policy()))
    weaker = levels(sandbox_guarantees(ALL_WORKS, FULL_LIMITS, Policy(), "landlock"))
    assert {name for name in PROPERTIES if full[name] != weaker[name]} == {
        "files",
        "processes",
        "secrets",
    }


def test_this_machine_gives_what_the_other_tests_rely_on() -> None:
    assert unavailable() == ""
    assert probe().namespaces == ""
    found = levels(SandboxCommandLineCodeExecutor().guarantees())
    assert found["files"] == found["network"] == found["kernel surface"] == "enforced"


def test_guarantees_are_json() -> None:
    text = json.dumps([item.to_dict() for item in SandboxCommandLineCodeExecutor().guarantees()])
    assert [item["property"] for item in json.loads(text)] == PROPERTIES


def test_starting_fails_with_the_report_where_namespaces_are_forbidden() -> None:
    said = contained(RUN.format(isolation="full"))
    assert said.startswith("unavailable: The sandbox cannot be built here."), said
    assert "unshare" in said
    assert "cellblock doctor" in said
    assert "isolation='landlock'" in said


@pytest.mark.parametrize("call", ["pivot_root", "sethostname"])
def test_what_a_container_refuses_besides_namespaces_is_found_as_well(call: str) -> None:
    program = "from cellblock.sandbox import probe; print(probe.probe().namespaces)"
    numbers = {"pivot_root": (155, 41), "sethostname": (170, 161)}[call]  # on x86_64 and aarch64
    assert f"{call}: Operation not permitted" in contained(
        program, WITHOUT_CALL.format(call={call: numbers})
    )
    assert contained(program, "import sys; exec(sys.argv[1])") == "\n"


@pytest.mark.skipif(not namespaces.is_root(), reason="not root")
def test_root_that_may_not_map_users_is_told_to_be_somebody_else() -> None:
    without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    said = contained(RUN.format(isolation="full"), "import sys; exec(sys.argv[1])", without)
    assert "root may not map users here" in said
    assert "a plain user need not" in said


def test_the_weaker_level_runs_there_when_it_is_named() -> None:
    assert contained(RUN.format(isolation="landlock")) == "ran\n\n"
