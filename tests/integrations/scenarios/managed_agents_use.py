"""Use the tools of Anthropic's managed agents as the worker does, and print what comes back."""

import asyncio

from anthropic.lib.tools import ToolError

from cellblock import Sandbox
from cellblock.integrations.anthropic_worker import sandbox_tools

CALLS = (
    ("bash", {"command": "cd /tmp; export A=5; pwd"}),
    ("bash", {"command": "echo $A; pwd; false"}),
    ("bash", {"command": "echo partial; sleep 100", "timeout_ms": 2000}),
    ("bash", {"restart": True}),
    ("bash", {"command": "pwd"}),
    ("write", {"file_path": "a/b.txt", "content": "one\ntwo\ntwo\n"}),
    ("edit", {"file_path": "a/b.txt", "old_string": "two", "new_string": "2"}),
    ("edit", {"file_path": "a/b.txt", "old_string": "two", "new_string": "2", "replace_all": True}),
    ("read", {"file_path": "a/b.txt", "view_range": [2, -1]}),
    ("read", {"file_path": "none"}),
    ("glob", {"pattern": "**/*.txt"}),
    ("glob", {"pattern": "$(touch made); touch made"}),
    ("grep", {"pattern": "o.e", "path": "a"}),
    ("grep", {"pattern": "nothing"}),
    ("read", {"file_path": "made"}),
)


async def main():
    async with Sandbox() as sandbox:
        tools = {tool.name: tool for tool in sandbox_tools(sandbox)}
        for name, given in CALLS:
            try:
                print(name, repr(await tools[name].call(given)))
            except ToolError as error:
                print(name, "failed:", repr(str(error)))


asyncio.run(main())
