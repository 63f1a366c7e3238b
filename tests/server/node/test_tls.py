"""A node's certificates are looked at again at its interval, and what becomes of them is logged."""

import asyncio
from collections.abc import Sequence

import pytest

from tidelog.ports import CertificateNews
from tidelog.server.node.tls import NOT_CONNECTED, REFUSED, RELOADED, watch_certificates
from tidelog.wire.errors import ErrorCode, TidelogError

INTERVAL_MS = 10_000


class Clock:
    """Time that passes by sleeping, and ends."""

    def __init__(self, until_ms: float) -> None:
        self.now_ms = 0.0
        self._until_ms = until_ms

    def monotonic_ns(self) -> int:
        return int(self.now_ms * 1_000_000)

    def wall_ms(self) -> int:
        return int(self.now_ms)

    def uptime_ns(self) -> int:
        return self.monotonic_ns()

    async def sleep(self, duration_ms: int) -> None:
        await asyncio.sleep(0)
        self.now_ms += duration_ms
        if self.now_ms > self._until_ms:
            raise asyncio.CancelledError


class Files:
    """Certificates with news at the second look."""

    def __init__(self, *news: CertificateNews) -> None:
        self._news = news
        self.looks = 0

    def refresh(self) -> Sequence[CertificateNews]:
        self.looks += 1
        return self._news if self.looks == 2 else ()


def watch(*news: CertificateNews) -> int:
    """How often the files were looked at in five intervals."""
    files = Files(*news)

    async def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            await watch_certificates(files, Clock(5 * INTERVAL_MS), INTERVAL_MS)

    asyncio.run(run())
    return files.looks


def test_the_files_are_looked_at_once_in_each_interval() -> None:
    assert watch() == 5


def test_what_changed_is_told_with_its_names_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="tidelog")
    news = CertificateNews(
        user="listener client",
        certificate="node.pem",
        subject="CN=node",
        names=("a.example", "b.example"),
        expires="Nov 23 19:57:29 2026 GMT",
    )
    watch(news)
    assert caplog.messages == [
        (
            f'{RELOADED} user="listener client" certificate=node.pem subject="CN=node" '
            'names=a.example,b.example expires="Nov 23 19:57:29 2026 GMT"'
        )
    ]


def test_a_peer_that_cannot_be_reached_is_an_error_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusal = TidelogError(
        ErrorCode.UNAVAILABLE, tried="call it", happened="TLS: its certificate has expired"
    )
    watch(CertificateNews(user="connections to nodes", peer="10.0.0.2:9193", refusal=refusal))
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage().startswith(f"{NOT_CONNECTED} peer=10.0.0.2:9193")
    assert "has expired" in record.getMessage()


def test_a_refused_file_is_an_error_that_says_what_is_used_instead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusal = TidelogError(
        ErrorCode.INVALID_CONFIGURATION, tried="use it", happened="the certificate has expired"
    )
    watch(CertificateNews(user="listener client", certificate="node.pem", refusal=refusal))
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage().startswith(REFUSED)
    assert "the certificate has expired" in record.getMessage()
    assert "used before" in record.getMessage()
