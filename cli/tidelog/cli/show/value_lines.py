"""Values behind each other, for `consume` without keys or offsets in its format. Pure.

Owns a way from a batch's bytes to a page of lines without a step a record: where the records form
runs of one shape, their values are cut out in C.
"""

import struct
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tidelog.wire.batch import decode_records, decode_uniform_runs

if TYPE_CHECKING:
    from tidelog.wire.batch import DecodedRecord, UniformRun


class Opened(NamedTuple):
    """Of a batch, one or the other."""

    lines: bytes | None
    """All values, each with what ends it."""
    records: "list[DecodedRecord]"
    """If they form no runs, or some values are null."""


def open_values(data: bytes, end: bytes) -> Opened:
    """All values of a whole batch, each with `end` behind it."""
    opened, runs, records = decode_uniform_runs(data, is_compacted=True)
    if runs is None:
        return Opened(None, records)
    if any(run.shape.value_bytes < 0 for run in runs):
        return Opened(None, decode_records(data, verify=False, is_compacted=True))
    values = chain.from_iterable(_values(opened.body, run) for run in runs)
    return Opened(end.join(chain(values, (b"",))), [])


def _values(body: bytes, run: "UniformRun") -> Iterable[bytes]:
    shape = run.shape
    records = memoryview(body)[run.at : run.at + run.records * shape.size]
    rest = shape.size - shape.value_at - shape.value_bytes
    cut = struct.iter_unpack(f"{shape.value_at}x{shape.value_bytes}s{rest}x", records)
    return chain.from_iterable(cut)
