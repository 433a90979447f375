"""Unmodified clients of Azure dynamic sessions work with `cellblock serve`."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from cellblock.environments.virtualenv import environment_for, python_of

from .serving import Server, serving

_CLIENTS = (
    "autogen-ext[azure]==0.7.5",
    "aiohttp",
    "langchain-azure-dynamic-sessions==1.0.4",
    "semantic-kernel==1.45.*",
    "llama-index-tools-azure-code-interpreter==0.7.0",
)
_SCENARIOS = Path(__file__).parent / "scenarios"
pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def clients() -> Path:
    """Return a Python with the clients, in the cache of environments."""
    return python_of(asyncio.run(environment_for(_CLIENTS)))


def _check(python: Path, scenario: str, url: str, key: str, **environment: str) -> None:
    """Run a program that uses a client, and checks what it gets."""
    done = subprocess.run(
        [python, "-W", "ignore", _SCENARIOS / f"{scenario}.py", f"{url}/pools/p", key],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("scenario", ["autogen_azure", "langchain_azure"])
def test_a_client_runs_code_and_moves_files(
    clients: Path, server: Server, key: str, scenario: str
) -> None:
    _check(clients, scenario, server.url, key)


def test_llama_index_gets_its_token_from_the_identity_endpoint(
    clients: Path, server: Server, key: str
) -> None:
    environment = {"IDENTITY_ENDPOINT": f"{server.url}/msi/token", "IDENTITY_HEADER": key}
    _check(clients, "llama_index_azure", server.url, "none", **environment)


def test_semantic_kernel_uses_the_self_signed_certificate(clients: Path, tmp_path: Path) -> None:
    with serving(tmp_path, "--self-signed") as server:
        certificate = tmp_path / "cellblock" / "tls" / "server.crt"
        url, key = server.url.replace("127.0.0.1", "localhost"), server.add_key("kernel")
        _check(clients, "semantic_kernel_azure", url, key, SSL_CERT_FILE=str(certificate))
