"""A real cluster inside a test: nodes in this process that are killed, crashed, paused, restarted.

Owns the names of the testing kit. Importing it imports neither gRPC nor the server, nor anything
else that takes time: pytest loads `tidelog.testing.plugin` in every project that installs Tidelog.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.testing.aio import AsyncTestCluster
    from tidelog.testing.cluster import TestCluster
    from tidelog.testing.starting import start_cluster

__all__ = ["AsyncTestCluster", "TestCluster", "start_cluster"]

_PLACES: Final = {
    "AsyncTestCluster": "tidelog.testing.aio",
    "TestCluster": "tidelog.testing.cluster",
    "start_cluster": "tidelog.testing.starting",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imported at the first use."""
        import importlib

        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_PLACES[name]), name)
