"""Quotas by client id, as the admin client calls them."""

from collections.abc import Iterable, Mapping

from tidelog.client.shared.checked import checked
from tidelog.client.sync.admin.base import AdminBase
from tidelog.client.types.admin import ClientQuota
from tidelog.client.wire import growth as wire_growth


class QuotaCalls(AdminBase):
    """Describe and alter."""

    @checked
    def describe_client_quotas(
        self, client_ids: Iterable[str] | None = None, timeout_ms: int | None = None
    ) -> dict[str, ClientQuota]:
        """Quotas by client id; without names: all. The empty client id stands for those without
        a quota of their own; client ids without a quota are left out.
        """
        wanted = None if client_ids is None else list(client_ids)
        if wanted is not None and not wanted:
            return {}
        data = self._ask(
            "describe quotas",
            wire_growth.DESCRIBE_QUOTAS,
            wire_growth.describe_quotas_request(wanted or ()),
            self._limit_ms(timeout_ms),
        )
        return wire_growth.read_quotas(data)

    @checked
    def alter_client_quotas(
        self,
        quotas: Mapping[str, ClientQuota | None],
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Set the whole quota of each client id, or, with None, take it away; all or none.

        The empty client id stands for all clients without a quota of their own.
        """
        self._ask(
            "set quotas",
            wire_growth.ALTER_QUOTAS,
            wire_growth.alter_quotas_request(quotas, validate_only=validate_only),
            self._limit_ms(timeout_ms),
            validate_only=validate_only,
        )
