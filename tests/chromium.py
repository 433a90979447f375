"""Debian's Chromium for tests of pages, and what pages that should reach nothing try to reach."""

from __future__ import annotations

import http.server
import shutil
import threading

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
GUARD = 60.0  # seconds, for each step of the browser


class Listener:
    """An HTTP server that records what is requested from it, at `address`."""

    def __init__(self) -> None:
        self.paths = set[str]()
        self._has_changed = changed = threading.Condition()
        paths = self.paths

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with changed:
                    paths.add(self.path.partition("?")[0])
                    changed.notify_all()
                self.send_response(200)
                self.send_header("Access-Control-Allow-Origin", "*")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"[]")  # data without rows, which Vega does not ask for again

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Listener:
        threading.Thread(target=self._server.serve_forever).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def names(self, page: str) -> set[str]:
        """Return the last parts of the addresses that a page has requested."""
        return {path.split("/")[2] for path in self.paths if path.startswith(f"/{page}/")}

    def wait_for(self, page: str, names: set[str]) -> None:
        """Wait until all `names` are requested."""
        with self._has_changed:
            self._has_changed.wait_for(lambda: names <= self.names(page), GUARD)
        assert names <= self.names(page), names - self.names(page)
