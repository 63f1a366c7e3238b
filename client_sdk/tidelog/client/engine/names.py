"""Finds the name that a user probably meant. Owns nothing else."""

from collections.abc import Iterable
from difflib import get_close_matches

NAMES_COMPARED_MAX = 10_000
"""A hint is not worth more comparisons than this."""


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The closest known name, or None if nothing is close."""
    candidates = sorted(known)[:NAMES_COMPARED_MAX]
    matches = get_close_matches(name, candidates, n=1, cutoff=0.6)
    return matches[0] if matches else None
