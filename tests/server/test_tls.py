"""TLS: unusable files are refused at the start, and what a certificate of our own is good for."""

from __future__ import annotations

import os
import socket
import ssl
import stat
from pathlib import Path

import httpx
import pytest

from ..command_server import run_command
from .serving import serving

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives import serialization

from cellblock.server.http.serving.tls import Certificate, self_signed


def _refusal(*options: str | Path) -> str:
    """Return what the server writes when it does not start."""
    done = run_command("serve", "--no-auth", "--port", "0", *map(str, options))
    assert done.returncode != 0
    assert "serving on" not in done.stderr
    return done.stderr.strip()


def _encrypt(source: Path, target: Path) -> None:
    key = serialization.load_pem_private_key(source.read_bytes(), None)
    target.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Certificate:
    """Return a usable certificate and its key."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return self_signed(tmp_path / "made", "localhost")


def test_a_file_that_is_no_private_key_is_refused(made: Certificate) -> None:
    text = _refusal("--certificate", made.certificate, "--private-key", made.certificate)
    assert text == (
        f"cellblock: {made.certificate} cannot be used as private key: it has no such block. "
        "Use a file in PEM format with a PRIVATE KEY block."
    )


def test_a_file_that_is_no_certificate_is_refused(made: Certificate) -> None:
    text = _refusal("--certificate", made.private_key, "--private-key", made.private_key)
    assert f"{made.private_key} cannot be used as certificate" in text


def test_a_key_of_another_certificate_is_refused(made: Certificate, tmp_path: Path) -> None:
    other = self_signed(tmp_path / "other", "localhost")
    text = _refusal("--certificate", made.certificate, "--private-key", other.private_key)
    assert f"{other.private_key} does not belong to the certificate in {made.certificate}" in text


def test_an_encrypted_key_is_refused_without_a_question(made: Certificate, tmp_path: Path) -> None:
    encrypted = tmp_path / "encrypted.key"
    _encrypt(made.private_key, encrypted)
    text = _refusal("--certificate", made.certificate, "--private-key", encrypted)
    assert f"The private key in {encrypted} is encrypted" in text


def _outward_address() -> str:
    """Return the address that this machine uses to reach others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no network")
        return one.getsockname()[0]


def test_clients_can_use_the_addresses_of_this_machine(tmp_path: Path) -> None:
    address = _outward_address()
    with serving(tmp_path, "--self-signed", "--host", "0.0.0.0") as server:
        port = server.url.rpartition(":")[2]
        certificate = tmp_path / "cellblock" / "tls" / "server.crt"
        trust = ssl.create_default_context(cafile=certificate)
        for host in (address, "127.0.0.1", "localhost"):
            assert httpx.get(f"https://{host}:{port}/health", verify=trust).is_success


def test_all_users_can_read_the_certificate_but_no_secret(tmp_path: Path) -> None:
    old_mask = os.umask(0o077)
    try:
        paths = self_signed(tmp_path / "tls", "localhost")
    finally:
        os.umask(old_mask)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (paths.certificate.parent, *_all(paths))]
    assert modes == [0o755, 0o644, 0o600]


def test_a_certificate_is_kept_under_any_spelling_of_an_address(tmp_path: Path) -> None:
    first = self_signed(tmp_path, "0:0:0:0:0:0:0:2").certificate.read_bytes()
    assert self_signed(tmp_path, "::2").certificate.read_bytes() == first


def _all(paths: Certificate) -> tuple[Path, Path]:
    return paths.certificate, paths.private_key
