"""Aligned columns of text. Pure."""

from collections.abc import Sequence
from typing import Final

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


def table(head: Sequence[str], rows: Sequence[Sequence[object]], right: str = "") -> str:
    """Columns two blanks apart; `right` names the columns that are aligned to the right."""
    cells = [list(head), *([printable(str(value)) for value in row] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(head))]
    is_right = [name in right.split() for name in head]
    return "\n".join(
        "  ".join(
            text.rjust(width) if flush else text.ljust(width)
            for text, width, flush in zip(row, widths, is_right, strict=True)
        ).rstrip()
        for row in cells
    )


def printable(text: str) -> str:
    """What would break a line, or move a terminal's cursor, stands as its escape."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def size(size_bytes: int) -> str:
    """Bytes as a person reads them; `-` stands for unknown."""
    if size_bytes < 0:
        return "-"
    if size_bytes < 1024:
        return f"{size_bytes} B"
    value = float(size_bytes)
    place = -1
    while value >= 1024 and place < len(_UNITS) - 1:
        value /= 1024
        place += 1
    return f"{value:.1f} {_UNITS[place]}"


def known(value: int) -> str:
    """A number, or `-` where it is not known."""
    return "-" if value < 0 else str(value)


def listed(values: Sequence[int]) -> str:
    """Broker ids."""
    return ",".join(map(str, values)) or "-"


def count(number: int, noun: str) -> str:
    """`1 topic`, `2 topics`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
