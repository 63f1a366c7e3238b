"""Prints docs/cli.md, made of the help of every command: `python -m tidelog.cli.frame.reference`.

Owns the page's text around the helps. A test compares the page with it.
"""

import sys
from collections.abc import Iterator

from tidelog.cli.frame.commands import COMMANDS, make_parser, overview
from tidelog.cli.show.errors import EXIT_MEANINGS

_HEAD = """\
<!-- Written by `python -m tidelog.cli.frame.reference > docs/cli.md`; do not edit. -->

# The command line

`tidelog` and `python -m tidelog` are the same. Data goes to stdout, everything else to stderr; keys
and values pass through as bytes. `--json` prints what a program can rely on: its field names stay.

```
{overview}
```

## Mistakes

An error is three lines on stderr: what was tried, why it did not work, and `hint:` with what to do.
A code in brackets is one of [errors](errors.md). `-X` takes the arguments of the clients in
[configuration](configuration.md), in Python's spelling or in Kafka's with dots.

| exit code | meaning |
|---|---|
{exit_codes}

`produce` counts: when a line could not be stored, the first line of the error says how many are
stored, how many are not, and of how many nobody knows. Ctrl-C says the same.
"""


def page() -> str:
    """The whole page."""
    exit_codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_MEANINGS.items())
    return _HEAD.format(overview=overview(), exit_codes=exit_codes) + "".join(_sections())


def _sections() -> Iterator[str]:
    for words in COMMANDS:
        text = make_parser(words).format_help().rstrip()
        yield f"\n## tidelog {' '.join(words)}\n\n```\n{text}\n```\n"


if __name__ == "__main__":
    sys.stdout.write(page())
