"""Small helpers on typed errors."""

from tidelog.wire.errors import TidelogError
from tidelog.wire.refusals import invalid


def fresh(error: TidelogError) -> TidelogError:
    """An equal error of its own: one that is kept and raised again would grow its traceback."""
    return reworded(error)


def reworded(
    error: TidelogError,
    *,
    tried: str | None = None,
    happened: str | None = None,
    hint: str | None = None,
    retriable: bool | None = None,
) -> TidelogError:
    """The same error, told to somebody to whom other words say more."""
    return TidelogError(
        error.code,
        tried=error.tried if tried is None else tried,
        happened=error.happened if happened is None else happened,
        hint=error.hint if hint is None else hint,
        retriable=error.retriable if retriable is None else retriable,
    )


def internal(topic_name: str, *, tried: str) -> TidelogError:
    """INVALID_ARGUMENT: what the cluster itself writes is changed by nobody else."""
    return invalid(tried, f"the cluster itself uses topic {topic_name}")
