"""The quorum under simulation: members over datagrams, and whole nodes over ports.

Owns what the suite `quorum` is played with. It must never know of planted bugs.
"""
