"""Use a session of the OpenAI Agents SDK as it does, and print what comes back."""

import asyncio
import io
import json
import sys
from pathlib import Path

from agents import ShellCommandRequest
from agents.sandbox import Manifest
from agents.sandbox.entries import File
from agents.sandbox.errors import SandboxError
from agents.sandbox.manifest import Environment
from agents.sandbox.snapshot import LocalSnapshotSpec
from agents.tool import ShellActionRequest, ShellCallData

from cellblock import Sandbox
from cellblock.integrations.openai_agents import CellblockSandboxClient, shell_executor


async def use_shell():
    async with Sandbox() as sandbox:
        action = ShellActionRequest(["echo out; exit 3", "echo partial; sleep 100"], 2000)
        request = ShellCommandRequest(None, ShellCallData("call", action))
        for output in (await shell_executor(sandbox)(request)).output:
            print(repr(output.stdout), output.outcome)


async def use_session():
    client = CellblockSandboxClient()
    manifest = Manifest(
        entries={"given.txt": File(content=b"given")}, environment=Environment(value={"A": "5"})
    )
    snapshot = LocalSnapshotSpec(base_path=Path(sys.argv[1]))
    session = await client.create(snapshot=snapshot, manifest=manifest)
    async with session:
        await session.write(Path("a/b.txt"), io.BytesIO(b"text"))
        print(await session.running(), (await session.read(Path("given.txt"))).read())
        print([entry.path for entry in await session.ls(Path("a"))])
        done = await session.exec("echo $A; kill -9 $$")
        print(done.stdout, done.exit_code)
        print((await session.exec("/etc/passwd", shell=False)).exit_code)
        for failing in (
            session.read(Path("none")),
            session.read(Path("/etc/passwd")),
            session.write(Path("a"), io.BytesIO()),
            session.exec("sleep 100", timeout=0.5),
            session.exec("true", user="nobody-here"),
        ):
            try:
                await failing
            except SandboxError as error:
                print(type(error).__name__)
                if "nobody-here" in str(error):
                    print(error)
        (await session.exec("rm -r a; mkdir -p kept; echo changed > kept/file")).ok()
    state = client.serialize_session_state(session.state)
    await client.delete(session)
    print(await session.running())
    again = await client.resume(client.deserialize_session_state(state))
    async with again:
        print((await again.exec("cat kept/file; pwd; ls")).stdout)
    await client.delete(again)


async def resume_in_other_process(text):
    client = CellblockSandboxClient()
    session = await client.resume(client.deserialize_session_state(json.loads(text)))
    async with session:
        print((await session.exec("cat left; rm left")).stdout)


async def use_kept_sandbox():
    client = CellblockSandboxClient(lambda: Sandbox(kept=True))
    session = await client.create()
    async with session:
        await session.write(Path("left"), io.BytesIO(b"left here"))
    state = json.dumps(client.serialize_session_state(session.state))
    sys.stdout.flush()  # the other process prints too
    other = await asyncio.create_subprocess_exec(sys.executable, __file__, sys.argv[1], state)
    await other.wait()
    again = await client.resume(client.deserialize_session_state(json.loads(state)))
    async with again:
        print((await again.exec("cat left")).exit_code)
    await client.delete(again)


if len(sys.argv) > 2:
    asyncio.run(resume_in_other_process(sys.argv[2]))
else:
    asyncio.run(use_shell())
    asyncio.run(use_session())
    asyncio.run(use_kept_sandbox())
