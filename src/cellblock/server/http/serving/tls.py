"""Create a certificate for a server that has none: self-signed, kept, and renewed in time."""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from .local_addresses import local_addresses

_DAYS = 365
_RENEW_DAYS = 30  # before the certificate expires
_ANY_ADDRESS = ("0.0.0.0", "::")


@dataclass(frozen=True)
class Certificate:
    """The paths of a certificate and its private key, in PEM."""

    certificate: Path
    private_key: Path


def self_signed(folder: Path, host: str) -> Certificate:
    """Return a certificate for localhost, this machine and `host`. Create it if necessary.

    For 0.0.0.0 and ::, it names the addresses of this machine. All users can read it, but not its
    key. Raise `OSError` if `folder` cannot be written.
    """
    paths = Certificate(folder / "server.crt", folder / "server.key")
    names = _names(host)
    if not _is_usable(paths, names):
        folder.mkdir(parents=True, exist_ok=True)
        _create(paths, names)
    folder.chmod(0o755)
    paths.certificate.chmod(0o644)
    return paths


def _names(host: str) -> set[str]:
    names = {"localhost", "127.0.0.1", "::1", socket.gethostname(), host}
    if host in _ANY_ADDRESS:
        names |= local_addresses()
    return {_normal(name) for name in names - {*_ANY_ADDRESS, ""}}


def _normal(name: str) -> str:
    """Return an address in the form in which certificates show it, and other names as they are."""
    try:
        return str(ipaddress.ip_address(name.partition("%")[0]))
    except ValueError:
        return name


def _is_usable(paths: Certificate, names: set[str]) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(paths.certificate.read_bytes())
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    known = {str(name.value) for name in extension.value}
    is_fresh = certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=_RENEW_DAYS)
    return is_fresh and names <= known and paths.private_key.is_file()


def _create(paths: Certificate, names: set[str]) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Cellblock")])
    now = datetime.now(UTC)
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in sorted(names)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(paths.private_key, private)
    _write(paths.certificate, certificate.public_bytes(serialization.Encoding.PEM))


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(path: Path, content: bytes) -> None:
    """Replace a file. Only its owner can read the new one."""
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
    os.replace(temporary, path)
