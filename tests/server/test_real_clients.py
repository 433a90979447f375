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
pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def clients() -> Path:
    """Return a Python with the clients, in the cache of environments."""
    return python_of(asyncio.run(environment_for(_CLIENTS)))


def _run(python: Path, scenario: str, url: str, key: str, **environment: str) -> str:
    done = subprocess.run(
        [python, "-W", "ignore", _SCENARIOS / f"{scenario}.py", f"{url}/pools/p", key],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_autogen_runs_functions_code_and_files(clients: Path, server: Server, key: str) -> None:
    assert _run(clients, "autogen_azure", server.url, key).splitlines() == [
        "0 'hi\\n'",
        "0 '42'",
        "0 '5'",
        "1 True",
        "['two words.txt']",
        "0",
        "CONTENT",
        "True",
    ]


def test_langchain_runs_python_commands_and_files(clients: Path, server: Server, key: str) -> None:
    assert _run(clients, "langchain_azure", server.url, key).splitlines() == [
        "Success",
        "42",
        "{",
        '  "result": "",',
        '  "stdout": "hi\\n",',
        '  "stderr": ""',
        "}",
        "Failure True",
        "a b.txt 5 /mnt/data/a b.txt",
        "['a b.txt']",
        "b'hello'",
        "hello",
        "3 hello",
    ]


def test_llama_index_gets_its_token_from_the_identity_endpoint(
    clients: Path, server: Server, key: str
) -> None:
    environment = {"IDENTITY_ENDPOINT": f"{server.url}/msi/token", "IDENTITY_HEADER": key}
    output = _run(clients, "llama_index_azure", server.url, "none", **environment)
    assert output.splitlines() == [
        "Success",
        "42",
        "['a.txt']",
        "['a.txt']",
        "content",
        "None content",
    ]


def test_semantic_kernel_uses_the_self_signed_certificate(clients: Path, tmp_path: Path) -> None:
    with serving(tmp_path, "--self-signed") as server:
        certificate = tmp_path / "cellblock" / "tls" / "server.crt"
        output = _run(
            clients,
            "semantic_kernel_azure",
            server.url.replace("127.0.0.1", "localhost"),
            server.add_key("kernel"),
            SSL_CERT_FILE=str(certificate),
        )
    lines = [line for line in output.splitlines() if line]
    assert lines == [
        "Status:",
        "Success",
        "Result:",
        "42",
        "Stdout:",
        "hi",
        "Stderr:",
        "b.txt 7",
        "['b.txt']",
        "Status:",
        "Success",
        "Result:",
        "content",
        "Stdout:",
        "Stderr:",
        "b'content'",
        "True True",
    ]
