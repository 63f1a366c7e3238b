"""Entry point of `tidelog`: finds the command, runs it, and says in three lines what went wrong.

Imports nothing heavy: `--help` answers at once. Owns how a command ends: its exit code, a quiet end
when the reader of its output went away, and Ctrl-C at any moment.
"""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.cli import own_words
from tidelog.cli.frame import interrupt
from tidelog.cli.show.errors import (
    EXIT_BROKEN_PIPE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_TERMINATED,
    BadInput,
    CommandError,
    exit_code_of,
    print_error,
)
from tidelog.wire.nearest import nearest_name

if TYPE_CHECKING:
    import argparse

    from tidelog.cli.frame.commands import CommandModule


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. As the process's own command it may end the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        interrupt.install()
    code = _guarded(words)
    if arguments is None and code in (EXIT_INTERRUPTED, EXIT_TERMINATED, EXIT_BROKEN_PIPE):
        # What a client still waits for at an orderly exit, nobody waits for any more.
        os._exit(code)
    return code


def _guarded(words: Sequence[str]) -> int:
    try:
        code = _dispatch(words)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except CommandError as error:
        print_error(*own_words.told(error.what, error.why, error.hint, _command_of(words)))
        return error.exit_code
    except KeyboardInterrupt:
        return interrupt.exit_code()
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE
    except OSError as error:
        return _print_os_error(words, error)


def _dispatch(words: Sequence[str]) -> int:
    from tidelog.cli.frame.commands import COMMANDS, GROUPS, load, make_parser, overview

    if words and words[0] == "help":
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help"):
        print(overview())
        return EXIT_OK
    if words[0] == "--version":
        words = ["version", *words[1:]]
    if words[0] in GROUPS and (len(words) == 1 or words[1] in ("-h", "--help")):
        print(overview(words[0]))
        return EXIT_OK
    name = next((each for each in COMMANDS if tuple(words[: len(each)]) == each), None)
    if name is None:
        raise _unknown(words)
    parser = make_parser(name)
    parsed = parser.read(words[len(name) :])
    if parsed is None:
        print(parser.format_help(), end="")
        return EXIT_OK
    return _run(load(name), parsed)


def _unknown(words: Sequence[str]) -> BadInput:
    from tidelog.cli.frame.commands import COMMANDS, GROUPS

    word = words[0]
    if word in GROUPS:
        verbs = [each[1] for each in COMMANDS if each[0] == word]
        found = nearest_name(words[1], verbs)
        hint = f"did you mean `tidelog {word} {found}`?" if found else f"tidelog {word} --help"
        why = f"there is no such command; `{word}` has {', '.join(verbs)}"
        return BadInput(f"tidelog {word} {words[1]}", why, hint)
    if word.startswith("-"):
        return BadInput(
            f"tidelog {word}",
            "an option stands before the command",
            "put the command first: tidelog COMMAND [OPTION ...]",
        )
    found = nearest_name(word, [*GROUPS, *(each[0] for each in COMMANDS)])
    hint = f"did you mean `tidelog {found}`? (tidelog --help)" if found else "tidelog --help"
    return BadInput(f"tidelog {word}", "there is no such command", hint)


def _print_os_error(words: Sequence[str], error: OSError) -> int:
    name = f": {error.filename}" if error.filename else ""
    print_error(
        " ".join(("tidelog", *words[:2])),
        f"the system refused: {error.strerror or error}{name}",
        "check that the file or device is there, that there is room, and that you may use it",
    )
    return EXIT_FAILED


def _run(module: "CommandModule", parsed: "argparse.Namespace") -> int:
    from tidelog.wire.errors import TidelogError

    try:
        return module.run(parsed)
    except TidelogError as error:
        what = f"{error.tried} [{error.code.name}]"
        exit_code = exit_code_of(error.code.name)
        raise CommandError(what, error.happened, error.hint, exit_code) from None


def _command_of(words: Sequence[str]) -> str:
    """The words that name the command, of all that was typed."""
    from tidelog.cli.frame.commands import COMMANDS

    return " ".join(next((each for each in COMMANDS if tuple(words[: len(each)]) == each), ()))


if __name__ == "__main__":
    sys.exit(main())
