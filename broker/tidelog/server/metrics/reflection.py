"""Which services reflection lists: those of the methods that a listener serves."""

from collections.abc import Iterable


def service_names(methods: Iterable[str]) -> tuple[str, ...]:
    """Full names, each once, in order."""
    return tuple(sorted({name.split("/")[1] for name in methods}))
