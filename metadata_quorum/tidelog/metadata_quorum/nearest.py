"""The name that a user probably meant."""

import difflib
from collections.abc import Iterable


def nearest_name(wanted: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The most similar of the known names; None if none is similar enough to help."""
    matches = difflib.get_close_matches(wanted, sorted(known), n=1, cutoff=likeness)
    return matches[0] if matches else None


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """A sentence for a hint; empty if no name is near."""
    name = nearest_name(wanted, known)
    return f"Did you mean `{name}`?" if name else ""
