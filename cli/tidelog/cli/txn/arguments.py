"""Transactional ids and times as they are typed and shown, and what is said of an id that is not
there."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.patience import answer_timeout_ms
from tidelog.cli.show.clock_text import span
from tidelog.wire.nearest import nearest_name

if TYPE_CHECKING:
    from tidelog.client import AdminClient
    from tidelog.client.types.transactions import TransactionDescription
    from tidelog.wire.errors import TidelogError

_NAMES_COMPARED_MAX: Final = 10_000


def age(ms: int | None) -> str:
    """How long, as short as it says enough; `-`: nothing is in progress."""
    return "-" if ms is None else span(ms)[1:]


def moment(ms: int | None) -> str:
    """A time as a person compares it; `-`: none."""
    if ms is None:
        return "-"
    return datetime.fromtimestamp(ms // 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def unknown_ids(admin: "AdminClient", ids: Iterable[str]) -> "dict[str, TidelogError]":
    """Those that are surely not there, each with the one that was probably meant."""
    from tidelog.wire.errors import ErrorCode, TidelogError

    found = admin.try_list_transactions(timeout_ms=answer_timeout_ms())
    if found.missing_coordinators:
        return {}
    known = {each.transactional_id for each in found.transactions}
    unknown: dict[str, TidelogError] = {}
    for name in ids:
        if name not in known:
            nearest = nearest_name(name, known, known_max=_NAMES_COMPARED_MAX)
            unknown[name] = TidelogError(
                ErrorCode.TRANSACTION_NOT_FOUND,
                tried=f"find transaction {name}",
                happened=f"there is no transactional id `{name}`",
                hint=f"did you mean `{nearest}`?" if nearest else "",
            )
    return unknown


def described(admin: "AdminClient", ids: Iterable[str]) -> "list[TransactionDescription]":
    """Those that are there, in order; the first that is not is an error."""
    names = list(dict.fromkeys(ids))
    for error in unknown_ids(admin, names).values():
        raise error
    return admin.describe_transactions(names, answer_timeout_ms())
