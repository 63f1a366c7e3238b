"""The operating system's randomness: identifiers must not repeat after a restart or a fork."""

import secrets


class RealRandom:
    """Draws from the kernel each time, so that a forked child never repeats its parent."""

    def below(self, bound: int) -> int:
        """A whole number in [0, bound)."""
        assert bound > 0, f"nothing lies in [0, {bound})"
        return secrets.randbelow(bound)

    def uuid(self) -> bytes:
        """Sixteen random bytes."""
        return secrets.token_bytes(16)
