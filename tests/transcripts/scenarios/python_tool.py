"""A model's Python code in a fresh process: output, errors and wrong arguments."""

import tempfile
from collections.abc import AsyncGenerator
from typing import Any


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    with tempfile.TemporaryDirectory() as folder:
        executor = lib.LocalCommandLineCodeExecutor(work_dir=folder)
        await executor.start()
        tool = lib.PythonCodeExecutionTool(executor)
        token = lib.CancellationToken()
        yield [tool.name, tool.description]
        yield tool.schema
        yield await tool.run(lib.CodeExecutionInput(code="print(1)"), token)
        result = await tool.run_json({"code": "print(2, flush=True)\nraise SystemExit(3)"}, token)
        yield result
        yield tool.return_value_as_string(result)
        workbench = lib.StaticWorkbench([tool])
        for arguments in ({"code": "print(3)"}, {"code": "raise SystemExit(4)"}):
            yield await workbench.call_tool("CodeExecutor", arguments, token)
        yield (await workbench.call_tool("CodeExecutor", {"text": "5"}, token)).is_error
        saved = tool.dump_component()
        yield [saved.component_type, sorted(saved.config), saved.config["description"]]
        loaded = lib.PythonCodeExecutionTool.load_component(saved)
        yield loaded.name
        await executor.stop()
