"""The frame of every command: list, parser, errors, interruption."""
