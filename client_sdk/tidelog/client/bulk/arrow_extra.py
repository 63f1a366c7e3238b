"""Is pyarrow there? It comes with the extra `arrow`, and only calls that name Arrow need it.

Owns the error that says how to get it.
"""

import importlib.util

from tidelog.wire.errors import ErrorCode, TidelogError


def require_arrow(call: str) -> None:
    """Raise a typed error unless pyarrow can be imported."""
    if importlib.util.find_spec("pyarrow") is None:
        raise TidelogError(
            ErrorCode.INVALID_CONFIGURATION,
            tried=f"call {call}",
            happened="pyarrow is not installed",
            hint="install the extra: pip install 'tidelog[arrow]'",
        )
