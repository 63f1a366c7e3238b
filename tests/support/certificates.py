"""Authorities and certificates for tests, made by the `openssl` command.

The `cryptography` package would be a heavy dependency for a few files; the command is there
wherever OpenSSL is. Keys are P-256: one takes milliseconds.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import msgspec

from tidelog.ports import TlsFiles

SECONDS_MAX: Final = 20
LOOPBACK: Final = ("IP:127.0.0.1", "DNS:localhost")


def has_openssl() -> bool:
    """Whether certificates can be made here."""
    return shutil.which("openssl") is not None


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its key."""

    certificate: Path
    key: Path

    def files(self, authorities: Path | None = None) -> TlsFiles:
        """As an end of connections uses them."""
        return TlsFiles(
            certificate=str(self.certificate),
            key=str(self.key),
            authorities="" if authorities is None else str(authorities),
        )

    def replace(self, other: "Pair") -> None:
        """Put another certificate in this one's place, as a renewing program does."""
        self.key.write_bytes(other.key.read_bytes())
        self.certificate.write_bytes(other.certificate.read_bytes())


class Authority:
    """Signs certificates; all files lie in one directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self.name = name
        self.certificate = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        _openssl(
            "req", "-x509", *_new_key(self._key), "-subj", f"/CN={name}", "-days", "2",
            "-out", self.certificate,
        )  # fmt: skip

    def issue(
        self,
        name: str,
        *,
        subject: str = "",
        names: tuple[str, ...] = LOOPBACK,
        days: int = 1,
        uses: str = "",
    ) -> Pair:
        """A certificate for the names; below zero days it expired in the past; without uses
        (`serverAuth,clientAuth`) it is for all."""
        place = self._directory / f"{self.name}-{name}"
        request, extension = place.with_suffix(".csr"), place.with_suffix(".ext")
        pair = Pair(place.with_suffix(".pem"), place.with_suffix(".key"))
        _openssl("req", *_new_key(pair.key), "-subj", subject or f"/CN={name}", "-out", request)
        lines = [f"subjectAltName={','.join(names)}"] if names else []
        lines += [f"extendedKeyUsage={uses}"] if uses else []
        extension.write_text("\n".join([*lines, ""]) or "\n")
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key,
            "-CAcreateserial", "-days", str(days), "-extfile", extension, "-out", pair.certificate,
        )  # fmt: skip
        return pair


def encrypt_key(key: Path) -> None:
    """Put a password on it, in its place."""
    plain = key.with_suffix(".plain")
    plain.write_bytes(key.read_bytes())
    _openssl("pkcs8", "-topk8", "-in", plain, "-passout", "pass:secret", "-out", key)


def _new_key(key: Path) -> tuple[str | Path, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key)


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert done.returncode == 0, done.stderr
