"""TLS: unusable files are refused at the start, and what a certificate of our own is good for."""

from __future__ import annotations

import os
import socket
import ssl
import stat
from pathlib import Path

import httpx
import pytest

from cellblock.server.http.serving.tls import self_signed

from ..command_server import run_command
from .console.visiting import SAME_ORIGIN
from .serving import serving

pytest.importorskip("cryptography")


def _refusal(*options: str | Path) -> str:
    """Return what the server writes when it does not start."""
    done = run_command("serve", "--no-auth", "--port", "0", *map(str, options))
    assert done.returncode != 0
    assert "serving on" not in done.stderr
    return done.stderr.strip()


def _encrypt(source: Path, target: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(source.read_bytes(), None)
    target.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


def test_files_that_cannot_be_used_are_refused_without_a_question(tmp_path: Path) -> None:
    made = self_signed(tmp_path / "made", "localhost")
    other = self_signed(tmp_path / "other", "localhost")
    encrypted = tmp_path / "encrypted.key"
    _encrypt(made.private_key, encrypted)
    for certificate, key, message in (
        (
            made.certificate,
            made.certificate,
            f"cellblock: {made.certificate} cannot be used as private key: it has no such block. "
            "Use a file in PEM format with a PRIVATE KEY block.",
        ),
        (made.private_key, made.private_key, f"{made.private_key} cannot be used as certificate"),
        (
            made.certificate,
            other.private_key,
            f"{other.private_key} does not belong to the certificate in {made.certificate}",
        ),
        (made.certificate, encrypted, f"The private key in {encrypted} is encrypted"),
    ):
        assert message in _refusal("--certificate", certificate, "--private-key", key)


def _outward_address() -> str:
    """Return the address that this machine uses to reach others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.1"  # this machine has no network
        return one.getsockname()[0]


def test_clients_can_use_the_addresses_of_this_machine(tmp_path: Path) -> None:
    address = _outward_address()
    with serving(tmp_path, "--self-signed", "--host", "0.0.0.0") as server:
        port = server.url.rpartition(":")[2]
        certificate = tmp_path / "cellblock" / "tls" / "server.crt"
        trust = ssl.create_default_context(cafile=certificate)
        for host in (address, "127.0.0.1", "localhost"):
            assert httpx.get(f"https://{host}:{port}/health", verify=trust).is_success
        with httpx.Client(base_url=f"{server.url}/console", verify=False) as client:
            form = {"key": server.add_key("tls")}
            answer = client.post("/sign-in", data=form, headers=SAME_ORIGIN)
            assert client.get("/sessions").status_code == 200
    cookie = answer.headers["set-cookie"]  # which belongs to one host
    assert cookie.startswith("__Host-cellblock=")
    assert {"Secure", "HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))


@pytest.mark.depends_on_user
def test_all_users_can_read_the_certificate_but_no_secret(tmp_path: Path) -> None:
    old_mask = os.umask(0o077)
    try:
        made = self_signed(tmp_path / "tls", "localhost")
    finally:
        os.umask(old_mask)
    paths = (made.certificate.parent, made.certificate, made.private_key)
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o755, 0o644, 0o600]


def test_a_certificate_is_kept_under_any_spelling_of_an_address(tmp_path: Path) -> None:
    first = self_signed(tmp_path, "0:0:0:0:0:0:0:2").certificate.read_bytes()
    assert self_signed(tmp_path, "::2").certificate.read_bytes() == first
