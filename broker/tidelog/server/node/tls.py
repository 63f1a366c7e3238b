"""Certificates of a running node: looked at again and again, and told in its log.

Owns the interval and the events `certificate_reloaded`, `certificate_refused` and
`tls_connection_refused`. What may be used is decided where the files are read.
"""

from typing import Final

from tidelog.ports import CertificateNews, Certificates, Clock
from tidelog.server.events import log as log_events

RELOADED: Final = "certificate_reloaded"
REFUSED: Final = "certificate_refused"
NOT_CONNECTED: Final = "tls_connection_refused"


async def watch_certificates(certificates: Certificates, clock: Clock, interval_ms: int) -> None:
    """Until cancelled."""
    while True:
        await clock.sleep(interval_ms)
        for news in certificates.refresh():
            tell(news)


def tell(news: CertificateNews) -> None:
    """One line."""
    if news.peer:
        log_events.error(NOT_CONNECTED, peer=news.peer, error=news.refusal)
        return
    if news.refusal is not None:
        log_events.error(
            REFUSED,
            user=news.user,
            certificate=news.certificate,
            error=news.refusal,
            kept="the certificate that was used before",
        )
        return
    log_events.info(
        RELOADED,
        user=news.user,
        certificate=news.certificate,
        subject=news.subject,
        names=",".join(news.names),
        expires=news.expires,
    )
