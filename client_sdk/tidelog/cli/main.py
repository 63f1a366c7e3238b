"""Entry point of `tidelog`: a registry of subcommands, each imported only when it is called.

Owns how an error looks: one line what, one line why, one line `hint:`, exit code 2. A subcommand's
module has `configure(parser)` and `run(arguments) -> int`.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "dev": ("tidelog.cli.dev", "run one node on this machine, in the foreground"),
    "version": ("tidelog.cli.version", "print the release"),
}
"""Name → module, and what `tidelog --help` says of it."""

EXIT_ERROR: Final = 2
EXIT_INTERRUPTED: Final = 130


class Parser(argparse.ArgumentParser):
    """Reports bad input in three lines."""

    def error(self, message: str) -> NoReturn:
        """What, why, hint; exit code 2."""
        print_error(f"{self.prog}: bad arguments", message, f"{self.prog} --help")
        raise SystemExit(EXIT_ERROR)


def print_error(what: str, why: str, hint: str) -> None:
    """The three lines, on stderr."""
    print(f"error: {what}\n{why}\nhint: {hint}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] == "--version":
        words[0] = "version"
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return 0 if words else EXIT_ERROR
    name = words[0]
    if name not in COMMANDS:
        return _unknown(name)
    module_name, summary = COMMANDS[name]
    module = importlib.import_module(module_name)
    parser = Parser(prog=f"tidelog {name}", description=f"{summary[0].upper()}{summary[1:]}.")
    module.configure(parser)
    return _run(module, parser.parse_args(words[1:]))


def _run(module: object, parsed: argparse.Namespace) -> int:
    from tidelog.wire.errors import TidelogError

    try:
        code: int = module.run(parsed)  # type: ignore[attr-defined]
        return code
    except TidelogError as error:
        print_error(f"{error.tried} [{error.code.name}]", error.happened, error.hint)
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: tidelog COMMAND [OPTION ...]",
            "",
            *lines,
            "",
            "tidelog COMMAND --help tells more.",
        ]
    )


def _unknown(name: str) -> int:
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"Did you mean `tidelog {near[0]}`?" if near else "tidelog --help"
    print_error(f"run `tidelog {name}`", "there is no such command", hint)
    return EXIT_ERROR


if __name__ == "__main__":
    sys.exit(main())
