"""May this principal do this operation on this resource? Asked before a request is looked at."""

from typing import Protocol

from tidelog.ports.request_context import RequestContext


class Authorizer(Protocol):
    """`resource` and `operation` are the contract's words in lower case, such as topic, write."""

    def is_allowed(self, context: RequestContext, resource: str, operation: str) -> bool:
        """Decide from what is at hand; never waits."""
        ...


class AllowAll:
    """The authorizer of a cluster without access control."""

    def is_allowed(self, context: RequestContext, resource: str, operation: str) -> bool:
        """Allow."""
        del context, resource, operation
        return True
