"""An administrative call on the active controller: request bytes in, response bytes and index out.

Owns what every such call has in common. The functions of one service stand in a module of its own.
"""

from collections.abc import Awaitable, Callable

from tidelog.metadata.image.image import Image
from tidelog.metadata_quorum.active.controller import ActiveController
from tidelog.metadata_quorum.active.writes import AnswerT, Decide, Written
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.port import Executed
from tidelog.ports import RequestContext

Execute = Callable[[RequestContext, bytes, int], Awaitable[Executed]]
"""With who asked, the request, and how many milliseconds there are."""


async def write(
    controller: ActiveController,
    decide: Decide[AnswerT],
    *,
    validate_only: bool,
    tried: str,
    timeout_ms: int,
) -> Written[AnswerT]:
    """Decide and commit; with `validate_only` decide and commit nothing."""

    def decide_dry(image: Image) -> Decision[AnswerT]:
        return decide(image).dry()

    chosen = decide_dry if validate_only else decide
    return await controller.write(chosen, tried=tried, timeout_ms=timeout_ms)
