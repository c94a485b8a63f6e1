"""The certificate of an OTG server: files of its operator, or one that is made for this process by `openssl`."""

from __future__ import annotations

import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem

_DAYS: Final = "30"
_TIMEOUT_S: Final = 20


def server_context(certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Return the TLS context of a server; without files its certificate is self-signed, which snappi accepts.

    Raise `ConfigError` if the files cannot be used, or `openssl` is not installed.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key, password=lambda: "")
        except (OSError, ssl.SSLError) as error:
            problem = f"{certificate} cannot be used: {error.strerror or error}"
            raise ConfigError(
                Problem("--certificate", problem, "name PEM files of certificate and key")
            ) from None
        return context
    with tempfile.TemporaryDirectory() as directory:
        made_certificate, made_key = Path(directory, "certificate.pem"), Path(directory, "key.pem")
        _make(made_certificate, made_key)
        context.load_cert_chain(made_certificate, made_key)
    return context


def _make(certificate: Path, key: Path) -> None:
    """Write a self-signed certificate for localhost, and its key."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", _DAYS, "-subj", "/CN=localhost"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        remedy = "install openssl, name --certificate and --key, or add --plain"
        raise ConfigError(Problem("openssl", f"made no certificate: {error}", remedy)) from None
