"""The errors that a user of the SDK meets.

Owns the subclasses that only a client raises; everything else is a TidelogError with a code.
It must never import gRPC or protobuf.
"""

from tidelog.wire.errors import CATALOGUE, ErrorCode, TidelogError

__all__ = [
    "CATALOGUE",
    "ErrorCode",
    "ForkedClientError",
    "PeerError",
    "TidelogError",
    "WakeupError",
]


class ForkedClientError(TidelogError):
    """A client is used in a forked child in which gRPC cannot work."""

    def __init__(self, *, tried: str, happened: str, hint: str = "") -> None:
        super().__init__(
            ErrorCode.FORKED_CLIENT,
            tried=tried,
            happened=happened,
            hint=hint
            or "start workers with the spawn or forkserver method of multiprocessing, "
            "and make clients in the child",
        )


class WakeupError(TidelogError):
    """Another thread called `wakeup`."""

    def __init__(self, *, tried: str, happened: str, hint: str = "") -> None:
        super().__init__(ErrorCode.CANCELLED, tried=tried, happened=happened, hint=hint)


class PeerError(TidelogError):
    """What a broker answered; it knows of codes that this release has no name for."""

    def __init__(
        self,
        code: ErrorCode,
        *,
        tried: str,
        happened: str,
        hint: str = "",
        retriable: bool | None = None,
        retry_after_ms: int = 0,
    ) -> None:
        super().__init__(code, tried=tried, happened=happened, hint=hint)
        self._is_retriable = retriable
        self.retry_after_ms = retry_after_ms

    @property
    def retriable(self) -> bool:
        """As the broker said; it may know better than this release's catalogue."""
        if self._is_retriable is None:
            return CATALOGUE[self.code].retriable
        return self._is_retriable

    def __reduce__(self) -> tuple[object, ...]:
        told = (self.code, self.tried, self.happened, self.hint)
        return (_rebuild_peer_error, (*told, self._is_retriable, self.retry_after_ms))


def _rebuild_peer_error(
    code: ErrorCode,
    tried: str,
    happened: str,
    hint: str,
    retriable: bool | None,
    retry_after_ms: int,
) -> PeerError:
    return PeerError(
        code,
        tried=tried,
        happened=happened,
        hint=hint,
        retriable=retriable,
        retry_after_ms=retry_after_ms,
    )
