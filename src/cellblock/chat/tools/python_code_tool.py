"""PythonCodeExecutionTool: Python as a tool of AG2's agents, run in the sandbox."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextvars import ContextVar, Token
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field

from ...blocks import CodeBlock
from ...executors.command_line.base import CommandLineExecutor
from ...executors.command_line.docker import DockerCommandLineCodeExecutor
from ...executors.command_line.sandbox import SandboxCommandLineCodeExecutor
from .tool_registration import RegistersTools


class _Current:
    """A setting that a `with` block makes the current one."""

    _current: ContextVar[Any]
    _token: Token[Any]

    def __enter__(self) -> Self:
        self._token = self._current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._current.reset(self._token)


class WorkingDirectory(_Current):
    """The folder of the code's files. In a `with` block it is also this process's folder."""

    _current = ContextVar("working_directory", default=None)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._is_temporary = False
        self._before = ""

    @classmethod
    def create_tmp(cls) -> Self:
        """Return a new temporary folder, which the end of the `with` block removes."""
        folder = cls(tempfile.mkdtemp(prefix="cellblock-work-"))
        folder._is_temporary = True
        return folder

    def __enter__(self) -> Self:
        Path(self.path).mkdir(parents=True, exist_ok=True)
        self._before = os.getcwd()
        os.chdir(self.path)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        os.chdir(self._before)
        if self._is_temporary:
            shutil.rmtree(self.path, ignore_errors=True)

    @classmethod
    def get_current_working_directory(cls, working_directory: Self | None = None) -> Self | None:
        """Return `working_directory`, or that of the `with` block, or None."""
        return cls._current.get() if working_directory is None else working_directory


class PythonEnvironment(_Current):
    """What runs the code."""

    _current = ContextVar("python_environment", default=None)

    def executor(self, timeout: float, folder: str) -> CommandLineExecutor:
        """Return an executor, not started."""
        raise NotImplementedError(f"{type(self).__name__} has no executor.")

    @classmethod
    def get_current_python_environment(
        cls, python_environment: PythonEnvironment | None = None
    ) -> PythonEnvironment | None:
        """Return `python_environment`, or that of the `with` block, or None."""
        return cls._current.get() if python_environment is None else python_environment


class SystemPythonEnvironment(PythonEnvironment):
    """This Python with its packages, in the sandbox: code only sees its folder."""

    def executor(self, timeout: float, folder: str) -> CommandLineExecutor:
        """Return an executor, not started."""
        return SandboxCommandLineCodeExecutor(timeout, folder)


class DockerPythonEnvironment(PythonEnvironment):
    """The Python of an image, in a container without a network."""

    def __init__(self, image: str = "python:3.11-slim") -> None:
        self.image = image

    def executor(self, timeout: float, folder: str) -> CommandLineExecutor:
        """Return an executor, not started."""
        return DockerCommandLineCodeExecutor(self.image, timeout=timeout, work_dir=folder)


class CodeExecutionRequest(BaseModel):
    """What a model calls the tool with."""

    code: Annotated[str, Field(description="Python code to execute")]
    libraries: Annotated[
        list[str], Field(description="List of libraries to install before execution")
    ]


class PythonCodeExecutionTool:
    """Python for agents: register it for the model of one and the execution of the other.

    timeout              seconds that one call may take
    working_directory    the folder of the files; None: that of the `with` block
    python_environment   what runs the code; None: that of the `with` block, else the sandbox

    The `libraries` of a call are not installed, as in AG2. Raise `ValueError` without a folder.
    """

    def __init__(
        self,
        *,
        timeout: float = 30,
        working_directory: WorkingDirectory | None = None,
        python_environment: PythonEnvironment | None = None,
    ) -> None:
        folder = WorkingDirectory.get_current_working_directory(working_directory)
        if folder is None:
            raise ValueError("No working directory: pass working_directory=WorkingDirectory(path).")
        environment = PythonEnvironment.get_current_python_environment(python_environment)
        self.timeout, self.working_directory = timeout, folder
        self.python_environment = environment or SystemPythonEnvironment()
        self._folder = os.path.abspath(folder.path)
        self._name = self.name = "python_execute_code"
        self._description = self.description = "Executes Python code and returns the result."

    async def __call__(
        self,
        code_execution_request: Annotated[
            CodeExecutionRequest, "Python code and the libraries required"
        ],
    ) -> Mapping[str, Any]:
        executor = self.python_environment.executor(self.timeout, self._folder)
        async with executor:
            block = CodeBlock(code_execution_request.code, "python")
            result = await executor.execute_code_blocks([block])
        if result.outcome == "timeout":
            error = f"Execution timed out after {self.timeout} seconds"
            return {"success": False, "error": error}
        return {
            "success": result.exit_code == 0,
            "stdout": result.stdout,
            "stderr": result.stderr,
            "returncode": result.exit_code,
        }

    def register_for_llm(self, agent: RegistersTools) -> None:
        """Offer the tool to the model of `agent`."""
        agent.register_for_llm()(self)

    def register_for_execution(self, agent: RegistersTools) -> None:
        """Let `agent` execute the tool."""
        agent.register_for_execution()(self)

    def register_tool(self, agent: RegistersTools) -> None:
        """Do both for one agent."""
        self.register_for_llm(agent)
        self.register_for_execution(agent)
