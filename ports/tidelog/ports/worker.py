"""Background jobs that may take long: compaction, scrubbing, index rebuild.

They run in a process of their own, so that they never hold up the event loop, and hand over their
result as bytes; files change hands by rename.
"""

from typing import Protocol


class Worker(Protocol):
    """1. Jobs run one at a time, in the order submitted. 2. A job that dies raises here."""

    async def run(self, job: str, arguments: bytes) -> bytes:
        """Run the function that `job` names (`package.module:function`, bytes → bytes).

        Raises TidelogError (UNKNOWN) if the job raised or its process died.
        """
        ...

    async def close(self) -> None:
        """End the process; a job in progress is given up."""
        ...
