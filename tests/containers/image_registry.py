"""An image registry on this machine with one image, which the engine can pull."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import secrets
import tarfile
import threading
from collections.abc import Generator

from tests.containers import docker_engine

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _with_new_file(layer: bytes) -> bytes:
    """Return a layer with an additional file, so that no engine has it yet."""
    data = io.BytesIO(layer)
    with tarfile.open(fileobj=data, mode="a") as archive:
        archive.addfile(tarfile.TarInfo(f"etc/fetched-{secrets.token_hex(8)}"))
    return data.getvalue()


def _manifest_and_blobs(reference: str) -> tuple[bytes, dict[str, bytes]]:
    """Return the manifest of an image of the engine, and its blobs by digest."""
    with tarfile.open(
        fileobj=io.BytesIO(docker_engine.shared_engine().export_image(reference))
    ) as saved:

        def member(name: str) -> bytes:
            file = saved.extractfile(name)
            assert file is not None
            return file.read()

        listed = json.loads(member("manifest.json"))[0]
        (name,) = listed["Layers"]
        layer, config = _with_new_file(member(name)), json.loads(member(listed["Config"]))
    config["rootfs"]["diff_ids"] = [_digest(layer)]
    parts = [(_CONFIG, json.dumps(config).encode()), (_LAYER, layer)]
    described = [
        {"mediaType": kind, "size": len(data), "digest": _digest(data)} for kind, data in parts
    ]
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": described[0],
        "layers": described[1:],
    }
    return json.dumps(manifest).encode(), {_digest(data): data for _, data in parts}


@contextlib.contextmanager
def serve_image(reference: str) -> Generator[str]:
    """Serve an image with the content of `reference`, and yield its name in the registry."""
    manifest, blobs = _manifest_and_blobs(reference)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            last = self.path.rpartition("/")[2]
            if "/manifests/" in self.path and last in ("1", _digest(manifest)):
                self._answer(manifest, _MANIFEST, _digest(manifest))
            elif self.path == "/v2/":
                self._answer(b"{}", "application/json", "")
            elif last in blobs:
                self._answer(blobs[last], "application/octet-stream", last)
            else:
                self.send_error(404)

        do_HEAD = do_GET

        def _answer(self, data: bytes, kind: str, digest: str) -> None:
            self.send_response(200)
            for name, value in (
                ("Content-Type", kind),
                ("Content-Length", len(data)),
                ("Docker-Content-Digest", digest),
            ):
                self.send_header(name, str(value))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    name = f"127.0.0.1:{server.server_port}/cellblock-test-fetched:1"
    try:
        yield name
    finally:
        server.shutdown()
        server.server_close()
        if docker_engine.shared_engine().docker("images", "--quiet", name):
            docker_engine.shared_engine().docker("rmi", "--force", name)
