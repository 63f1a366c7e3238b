"""Raft, pure: messages, requests, ticks and completions go in, effects come out.

Owns consensus. It must never read a clock, draw randomness, touch a file or a socket, or log.
"""
