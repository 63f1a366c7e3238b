"""Limits of settings that decisions obey too. Pure."""

from typing import Final

REPLICAS_MAX: Final = 50
"""Of one partition: what an entry of the log was sized for."""
