"""Check the files of a certificate before the server starts."""

from __future__ import annotations

import ssl
from pathlib import Path

from ....errors import BackendError


def check_tls_files(certificate: Path, private_key: Path) -> None:
    """Raise `BackendError` if these files, in PEM, are not a certificate and its private key."""
    _check_certificate(certificate)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Without a function, OpenSSL would ask for the password on the terminal.
        context.load_cert_chain(certificate, private_key, password=lambda: _refuse(private_key))
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise BackendError(
                f"The private key in {private_key} does not belong to the certificate in "
                f"{certificate}. Name the two files that were made together."
            ) from None
        raise BackendError(
            f"{private_key} cannot be used as private key: {_reason(error)}. Use a file in PEM "
            "format with a PRIVATE KEY block."
        ) from None
    except OSError as error:
        raise _unreadable(private_key, error) from None


def _check_certificate(path: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except ssl.SSLError as error:
        raise BackendError(
            f"{path} cannot be used as certificate: {_reason(error)}. Use a file in PEM format "
            "with a CERTIFICATE block."
        ) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def _refuse(path: Path) -> str:
    raise BackendError(
        f"The private key in {path} is encrypted. Decrypt it: openssl pkey -in {path} -out NEW."
    )


def _unreadable(path: Path, error: OSError) -> BackendError:
    return BackendError(f"{path} cannot be read: {error.strerror}.")


def _reason(error: ssl.SSLError) -> str:
    """Return what OpenSSL found; it has no name for a file without PEM blocks."""
    reason = (error.reason or "").lower().replace("_", " ")
    return "it has no such block" if reason in ("", "pem lib", "no start line") else reason
