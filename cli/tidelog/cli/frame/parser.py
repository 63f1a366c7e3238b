"""Reads the arguments of one command; bad ones are told in three lines with the nearest name.

Owns how help looks (the same text at every width and Python version, so that docs/cli.md can be
compared with it) and the kinds of values that options take.
"""

import argparse
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NoReturn

from tidelog.cli.show.errors import BadInput
from tidelog.wire.nearest import nearest_name

HELP_WIDTH: Final = 88
_HELP_COLUMN: Final = 26


class HelpFormatter(argparse.HelpFormatter):
    """One width; each option as `-b, --bootstrap HOST:PORT`."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=_HELP_COLUMN, width=HELP_WIDTH)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        names = ", ".join(action.option_strings)
        return names if action.nargs == 0 else f"{names} {action.metavar}"


class Parser(argparse.ArgumentParser):
    """One command's arguments."""

    def __init__(
        self, *, command: str, description: str, examples: Iterable[tuple[str, str]]
    ) -> None:
        self.examples = tuple(examples)
        super().__init__(
            prog=command,
            description=description,
            formatter_class=HelpFormatter,
            allow_abbrev=False,
            add_help=False,
        )
        self.add_argument("-h", "--help", action="store_true", help="print this and exit")

    def format_help(self) -> str:
        """Usage, description, arguments, examples."""
        positionals = [action for action in self._actions if not action.option_strings]
        names = [_positional(action) for action in positionals]
        formatter = self._get_formatter()
        paragraphs = (self.description or "").split("\n\n")
        text = "\n\n".join(textwrap.fill(each, HELP_WIDTH) for each in paragraphs)
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        usage = f"usage: {' '.join([self.prog, *names, '[OPTION ...]'])}"
        parts = [usage, text, formatter.format_help().rstrip()]
        if self.examples:
            lines = [f"  # {comment}\n  {command}" for command, comment in self.examples]
            parts.append("examples:\n" + "\n".join(lines))
        return "\n\n".join(parts) + "\n"

    def read(self, words: Sequence[str]) -> argparse.Namespace | None:
        """The arguments; None: help was asked for."""
        if any(word in ("-h", "--help") for word in _before_dashes(words)):
            return None
        parsed, extra = self.parse_known_args(list(words))
        if extra:
            self._refuse_extra(extra)
        _refuse_undecodable(self, parsed)
        return parsed

    def error(self, message: str) -> NoReturn:
        """What argparse found wrong."""
        required = "the following arguments are required: "
        if message.startswith(required):
            message = f"{message.removeprefix(required)} is missing"
        raise BadInput(self.prog, message.removeprefix("argument "), self.help_hint())

    def help_hint(self) -> str:
        """What to look at."""
        if not self.examples:
            return f"{self.prog} --help"
        return f"for example `{self.examples[0][0]}`; more: {self.prog} --help"

    def option_names(self) -> list[str]:
        """Every option as it can be typed."""
        return [name for action in self._actions for name in action.option_strings]

    def _refuse_extra(self, extra: Sequence[str]) -> NoReturn:
        options = [word for word in extra if word.startswith("-") and word != "-"]
        if not options:
            raise BadInput(self.prog, f"`{extra[0]}` is one argument too many", self.help_hint())
        name = options[0].partition("=")[0]
        # Without the dashes, which all have: they would make any two alike.
        known = [each[2:] for each in self.option_names() if each.startswith("--")]
        found = nearest_name(name.lstrip("-"), known)
        hint = f"did you mean --{found}? ({self.prog} --help)" if found else f"{self.prog} --help"
        raise BadInput(self.prog, f"there is no option `{name}`", hint)


def number(low: int, high: int, *, name: str = "a number") -> Callable[[str], int]:
    """A whole number within bounds."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not text.isascii() or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"`{text}` is not {name} from {low} to {high}")
        return value

    return convert


def pair(text: str) -> tuple[str, str]:
    """`name=value`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"`{text}` is not name=value")
    return name, value


def add_bootstrap(parser: Parser) -> None:
    """-b and -X, for every command that talks to a cluster."""
    from tidelog.cli.frame.client_options import add_options

    parser.add_argument(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        help="where the cluster is, several with commas (default: TIDELOG_BOOTSTRAP, else "
        "localhost:9192)",
    )
    if "-X" not in parser.option_names():
        add_options(parser)


def add_json(parser: Parser, fields: str) -> None:
    """--json, for every list and describe."""
    parser.add_argument("--json", action="store_true", help=f"as JSON: {fields}")


def _positional(action: argparse.Action) -> str:
    name = str(action.metavar)
    if action.nargs == "*":
        return f"[{name} ...]"
    if action.nargs == "+":
        return f"{name} ..."
    return f"[{name}]" if action.nargs == "?" else name


def _before_dashes(words: Sequence[str]) -> Sequence[str]:
    return words[: words.index("--")] if "--" in words else words


BYTES_ARGUMENTS: Final = frozenset({"key_separator", "delimiter", "header", "format"})
"""May hold any bytes; every other argument is text."""


def _refuse_undecodable(parser: Parser, parsed: argparse.Namespace) -> None:
    for name, value in vars(parsed).items():
        if name in BYTES_ARGUMENTS:
            continue
        for text in value if isinstance(value, list) else [value]:
            words = text if isinstance(text, tuple) else (text,)
            if any(isinstance(word, str) and not _is_text(word) for word in words):
                shown = ascii(text)
                raise BadInput(
                    parser.prog,
                    f"the argument {shown} is not valid {sys.getfilesystemencoding()}",
                    "only -K, -D, -H and -f take arbitrary bytes",
                )


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True
