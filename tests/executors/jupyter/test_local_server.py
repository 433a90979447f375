"""LocalJupyterServer starts a bare server, and finds out when it listens, and on which port."""

from __future__ import annotations

import os
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from cellblock import LocalJupyterServer
from tests.executors.jupyter.server_inspection import kernels_status

pytestmark = pytest.mark.kernel


@pytest.mark.slow
def test_extensions_are_not_loaded() -> None:
    pytest.importorskip("jupyterlab", reason="jupyterlab, an extension, is missing")
    with LocalJupyterServer() as server:
        info = server.connection_info
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{info.url}/lab?token={info.token}")


@pytest.mark.slow
def test_starting_waits_for_a_local_server_that_is_slow_to_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\n"
        "if 'jupyter_server' in sys.orig_argv[2]:\n"
        "    from jupyter_server.serverapp import ServerApp\n"
        "    bind = ServerApp._bind_http_server\n"
        "    ServerApp._bind_http_server = lambda self: (time.sleep(1), bind(self))[1]\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with LocalJupyterServer() as server:
        socket.create_connection(("127.0.0.1", server.connection_info.port or 0)).close()


@pytest.mark.slow
def test_starting_takes_another_port_if_a_program_takes_the_first_one_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, taken = tmp_path / "chosen", tmp_path / "taken"
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, time\n"
        f"if 'jupyter_server' in sys.orig_argv[2] and not os.path.exists({str(taken)!r}):\n"
        "    from jupyter_server.serverapp import ServerApp\n"
        "    bind = ServerApp._bind_http_server\n"
        "    def bind_later(self):\n"
        f"        with open({str(chosen)!r}, 'w') as file:\n"
        "            print(self.port, file=file)\n"
        f"        while not os.path.exists({str(taken)!r}):\n"
        "            time.sleep(0.01)\n"
        "        return bind(self)\n"
        "    ServerApp._bind_http_server = bind_later\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    def take_port() -> None:
        while not (chosen.exists() and chosen.read_text().endswith("\n")):
            time.sleep(0.01)
        other.bind(("127.0.0.1", int(chosen.read_text())))
        other.listen()
        taken.touch()

    with socket.socket() as other:
        thread = threading.Thread(target=take_port)
        thread.start()
        with LocalJupyterServer() as server:
            thread.join()
            assert server.connection_info.port != other.getsockname()[1]
            assert kernels_status(server.connection_info, server.connection_info.token) == 200
