"""The name that a user probably meant: for the hints of every room.

Pure; the comparing module is imported when a name is looked for, since most programs never do.
"""

from collections.abc import Iterable, Sized
from typing import Final

WANTED_LENGTH_MAX: Final = 249
KNOWN_MAX: Final = 200
"""Each comparison takes some 0.1 ms, and whoever asks for an unknown name asks again and again."""


def nearest_name(
    wanted: str, known: Iterable[str], *, likeness: float = 0.6, known_max: int = KNOWN_MAX
) -> str | None:
    """The most similar of the known names; None if none is similar enough to help.

    None also where looking would take long: a hint is not worth holding up everybody else.
    """
    if len(wanted) > WANTED_LENGTH_MAX or (isinstance(known, Sized) and len(known) > known_max):
        return None
    from difflib import get_close_matches

    matches = get_close_matches(wanted, sorted(known), n=1, cutoff=likeness)
    return matches[0] if matches else None


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """A sentence for a hint; empty if no name is near."""
    name = nearest_name(wanted, known)
    return f"Did you mean `{name}`?" if name else ""
