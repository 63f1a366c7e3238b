"""Checks of what brokers told clients that came with nothing but an offset.

A client that is told that its offset is out of range begins elsewhere, as it is documented to: it
skips records or reads them again. So a broker may say that of no offset up to the end of what was
acknowledged, also while it does not know yet that it leads no more.
"""

from collections.abc import Iterator

from tidelog.chaos.checkers.history.history import Inquiry
from tidelog.chaos.checkers.history.view import Found, PartitionView


def refused_kept(view: PartitionView) -> Found:
    """An offset of acknowledged and kept records, or their end, was called out of range."""
    for inquiry, end_offset in _with_acknowledged_ends(view):
        is_kept = view.trimmed_to <= inquiry.offset <= end_offset
        if inquiry.is_refused_for_good and is_kept:
            yield (
                f"{inquiry.broker} told {inquiry.client} ({inquiry.method}) that {inquiry.offset} "
                f"is out of range, acknowledged was up to {end_offset}"
            )


def end_behind(view: PartitionView) -> Found:
    """The leader showed a high watermark below the end of what was acknowledged before."""
    for inquiry, end_offset in _with_acknowledged_ends(view):
        if inquiry.is_leader and 0 <= inquiry.high_watermark < end_offset:
            yield (
                f"{inquiry.broker} showed {inquiry.client} ({inquiry.method}) the watermark "
                f"{inquiry.high_watermark}, acknowledged was up to {end_offset}"
            )


def _with_acknowledged_ends(view: PartitionView) -> Iterator[tuple[Inquiry, int]]:
    """Each inquiry, and the end of what had been acknowledged when it began; 0: nothing."""
    by_end = sorted(view.committed_at, key=lambda send: send.ended_ns)
    end_offset = at = 0
    for inquiry in sorted(view.inquiries, key=lambda each: each.began_ns):
        while at < len(by_end) and by_end[at].ended_ns < inquiry.began_ns:
            end_offset = max(end_offset, by_end[at].base_offset + len(by_end[at].values))
            at += 1
        yield inquiry, end_offset
