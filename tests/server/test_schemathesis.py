"""Requests that schemathesis makes from the server's own document: none is a server error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .serving import serving

# An answer must have a status and a body that the document describes.
_CHECKS = "not_a_server_error,status_code_conformance,response_schema_conformance"


@pytest.mark.slow  # its import alone takes seconds
def test_requests_from_the_document_are_never_a_server_error(tmp_path: Path) -> None:
    pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    options = ("--timeout", "5", "--max-body", "1M", "--max-file", "1M", "--idle", "30")
    with serving(tmp_path, *options) as server:
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
            *("--header", f"Authorization: Bearer {server.add_key('schemathesis')}"),
            *("--checks", _CHECKS, "--max-examples", "2", "--seed", "1"),
            *("--workers", "1"),
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "rest.run_once" in "".join(server.lines)
        assert not [line for line in server.lines if '"status": 5' in line]
