"""What tests of kernels on servers ask those, and the engine that runs some of them."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from typing import Any

from cellblock import DockerJupyterServer, JupyterConnectionInfo
from tests.containers import docker_engine as engines


def facts(engine: engines.Engine, server: DockerJupyterServer) -> dict[str, Any]:
    return json.loads(engine.docker("inspect", str(server.container_name)))[0]


def names(engine: engines.Engine) -> list[str]:
    return engine.docker("ps", "--all", "--format", "{{.Names}}").split()


def ask(info: JupyterConnectionInfo, token: str | None) -> int:
    request = urllib.request.Request(f"{info.url}/api/kernels")
    if token is not None:
        request.add_header("Authorization", f"token {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def build(engine: engines.Engine, name: str, dockerfile: str) -> str:
    environment = {**os.environ, "DOCKER_HOST": engine.host, "DOCKER_BUILDKIT": "0"}
    argv = ["docker", "build", "--tag", name, "-"]
    done = subprocess.run(
        argv, input=dockerfile.encode(), env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return name
