"""Typed refusals of the codec; each says what was tried, what is wrong and at which byte.

Owns the three errors that reading or writing a batch can end in. Whatever bytes a peer or a disk
hands in, the codec raises one of these or returns what the bytes say: never another exception.
"""

from tidelog.wire.errors import ErrorCode, TidelogError


class CorruptBatch(TidelogError):
    """Bytes that contradict their checksum or the format."""

    def __init__(self, *, tried: str, happened: str, hint: str = "") -> None:
        super().__init__(ErrorCode.CORRUPT_BATCH, tried=tried, happened=happened, hint=hint)


class BatchTooLarge(TidelogError):
    """A record or batch beyond one of the codec's named limits, compressed bombs included."""

    def __init__(self, *, tried: str, happened: str, hint: str = "") -> None:
        super().__init__(ErrorCode.BATCH_TOO_LARGE, tried=tried, happened=happened, hint=hint)


class UnsupportedCodec(TidelogError):
    """A compression codec that is not in the format."""

    def __init__(self, *, tried: str, happened: str, hint: str = "") -> None:
        super().__init__(ErrorCode.UNSUPPORTED_CODEC, tried=tried, happened=happened, hint=hint)
