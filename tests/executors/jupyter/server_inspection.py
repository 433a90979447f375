"""Inspect Jupyter servers and the container engine that runs them, for tests."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import urllib.error
import urllib.request
from typing import Any

from cellblock import DockerJupyterServer, JupyterConnectionInfo
from tests.containers import docker_engine as engines


def inspect_container(engine: engines.Engine, server: DockerJupyterServer) -> dict[str, Any]:
    """Return the engine's description of the server's container."""
    return json.loads(engine.docker("inspect", str(server.container_name)))[0]


def container_names(engine: engines.Engine) -> list[str]:
    """Return the names of all containers of the engine."""
    return engine.docker("ps", "--all", "--format", "{{.Names}}").split()


def kernels_status(info: JupyterConnectionInfo, token: str | None) -> int:
    """Return the HTTP status of a request for the list of kernels."""
    request = urllib.request.Request(f"{info.url}/api/kernels")
    if token is not None:
        request.add_header("Authorization", f"token {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def build_image(engine: engines.Engine, name: str, dockerfile: str) -> str:
    """Build an image, and return its name with a tag for what it is made of."""
    name += f":{hashlib.sha256(dockerfile.encode()).hexdigest()[:12]}"
    environment = {**os.environ, "DOCKER_HOST": engine.host, "DOCKER_BUILDKIT": "0"}
    argv = ["docker", "build", "--tag", name, "-"]
    done = subprocess.run(
        argv, input=dockerfile.encode(), env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return name
