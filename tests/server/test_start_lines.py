"""What `cellblock serve` and `cellblock mcp --http` print when they start and listen."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from .serving import serving

URL = r"http://127\.0\.0\.1:[1-9][0-9]*"


def test_the_server_says_that_it_starts_and_where_it_listens(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-auth", is_forked=False) as server:
        starting, serving_on = server.all_lines[:2]
        assert starting == "cellblock: starting\n"
        assert re.fullmatch(f"cellblock: serving on {URL}\n", serving_on)
        with urllib.request.urlopen(f"{server.url}/ready") as answer:
            assert answer.status == 200


def test_an_mcp_server_says_that_it_starts_and_where_it_listens() -> None:
    pytest.importorskip("mcp")
    command = [sys.executable, "-m", "cellblock", "mcp", "--http", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline() == "cellblock: starting\n"
            line = process.stderr.readline()
            assert re.fullmatch(f"cellblock: serving on {URL}/mcp\n", line)
            with pytest.raises(urllib.error.HTTPError) as refused:  # it speaks, but only MCP
                urllib.request.urlopen(line.split()[-1])
            refused.value.close()
        finally:
            process.terminate()
