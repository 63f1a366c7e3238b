"""Backslash escapes in separators and formats. Pure."""

from typing import Final

from tidelog.cli.show.errors import BadInput

_SIMPLE: Final = {
    ord("n"): b"\n",
    ord("t"): b"\t",
    ord("r"): b"\r",
    ord("0"): b"\0",
    ord("\\"): b"\\",
}
_KNOWN: Final = r"known are \n \t \r \0 \\ and \xHH"


def unescape(data: bytes, *, what: str) -> bytes:
    r"""The bytes that `\n`, `\t`, `\r`, `\0`, `\\` and `\xHH` stand for."""
    if b"\\" not in data:
        return data
    out = bytearray()
    place = 0
    while place < len(data):
        if data[place] != ord("\\"):
            out.append(data[place])
            place += 1
            continue
        value, taken = _escape(data[place + 1 : place + 4], what)
        out += value
        place += 1 + taken
    return bytes(out)


def _escape(rest: bytes, what: str) -> tuple[bytes, int]:
    """The value, and how many bytes behind the backslash it took."""
    if rest and rest[0] in _SIMPLE:
        return _SIMPLE[rest[0]], 1
    if rest[:1] == b"x" and len(rest) == 3:
        try:
            return bytes.fromhex(rest[1:3].decode("ascii")), 3
        except ValueError:
            pass
    shown = (b"\\" + rest[: 3 if rest[:1] == b"x" else 1]).decode("utf-8", "backslashreplace")
    raise BadInput(what, f"`{shown}` is no escape", _KNOWN)
