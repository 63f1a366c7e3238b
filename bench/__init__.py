"""Measurements of Tidelog and of the peers it stands beside: `python -m bench`.

Owns what is timed and how it is printed. It must never assert on a timing: a figure stands beside
a peer's of the same run, and a slow machine is not a failure.
"""
