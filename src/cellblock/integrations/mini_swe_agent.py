"""CellblockBashEnvironment: mini-swe-agent's commands in the sandbox. Needs `mini-swe-agent`."""

# mini-swe-agent is not a dependency, so a type checker may not find it.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import platform
import subprocess
from typing import Any

from minisweagent.exceptions import Submitted

from ..aio.background_loop import background_loop
from .box_argument import BoxConfig

_DONE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class CellblockBashConfig(BoxConfig, frozen=True):
    """The settings of `CellblockBashEnvironment`.

    cwd        the folder of commands; the work folder by default
    env        variables for commands
    timeout    seconds that a command may run
    user       the user that runs commands, such as "root", which needs `users: true`
    image      that of a container; None for a sandbox of this machine

    The others are the parameters of `cellblock.Sandbox`, or with an `image` of
    `cellblock.DockerSandbox`: `work_dir`, `root`, `users`, `limits`, `policy` and so on.
    """

    not_of_box = frozenset({"cwd", "env", "timeout", "user"})

    cwd: str = ""
    env: dict[str, str] = {}
    timeout: int = 30
    user: str | int | None = None
    image: str | None = None


class CellblockBashEnvironment:
    """Run the commands of mini-swe-agent in one sandbox.

        environment:
          environment_class: cellblock.integrations.mini_swe_agent.CellblockBashEnvironment
          work_dir: .

    The other settings are those of `CellblockBashConfig`. `cleanup` closes the sandbox; otherwise
    the end of the program does.
    """

    def __init__(self, **settings: Any) -> None:
        self.config = CellblockBashConfig(**settings)
        self.sandbox = self.config.make_box()

    def execute(
        self, action: dict[str, object], cwd: str = "", *, timeout: int | None = None
    ) -> dict[str, object]:
        """Run a command of bash. Raise `Submitted` if it is the last one."""
        command, seconds = str(action.get("command", "")), timeout or self.config.timeout
        try:
            running = self.sandbox.exec(
                ["bash", "-c", command],
                cwd=cwd or self.config.cwd or None,
                env=self.config.env,
                timeout=seconds,
                user=self.config.user,
                merge_stderr=True,
            )
            done = background_loop().run(running)
        except (OSError, RuntimeError, ValueError) as error:
            return _failure("", error)
        if done.timed_out:
            return _failure(done.stdout_text, subprocess.TimeoutExpired(command, seconds))
        lines = done.stdout_text.lstrip().splitlines(keepends=True)
        if done.exit_code == 0 and lines and lines[0].strip() == _DONE:
            answer = "".join(lines[1:])
            extra = {"exit_status": "Submitted", "submission": answer}
            raise Submitted({"role": "exit", "content": answer, "extra": extra})
        return {"output": done.stdout_text, "returncode": done.exit_code, "exception_info": ""}

    def get_template_vars(self, **others: Any) -> dict[str, object]:
        """Return what templates of prompts can name."""
        system = {**platform.uname()._asdict(), "node": "cellblock"}
        return {**self.config.model_dump(), **system, **others}

    def serialize(self) -> dict[str, object]:
        """Return what trajectories save."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        saved = {"environment": self.config.model_dump(mode="json"), "environment_type": kind}
        return {"info": {"config": saved}}

    def cleanup(self) -> None:
        """Close the sandbox."""
        background_loop().run(self.sandbox.close())


def _failure(output: str, error: Exception) -> dict[str, object]:
    return {
        "output": output,
        "returncode": -1,
        "exception_info": f"An error occurred while executing the command: {error}",
        "extra": {"exception_type": type(error).__name__, "exception": str(error)},
    }
