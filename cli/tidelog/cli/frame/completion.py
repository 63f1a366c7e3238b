"""`tidelog completion`: a script that completes commands and options in a shell.

Owns the three scripts, written from the list of commands and their parsers.
"""

import argparse
from typing import Final

from tidelog.cli.frame.commands import COMMANDS, make_parser
from tidelog.cli.frame.parser import Parser
from tidelog.cli.show.errors import EXIT_OK

DESCRIPTION: Final = "Print a script that completes commands and options in a shell."
EXAMPLES: Final = (
    ("source <(tidelog completion bash)", "in this shell; for good: in ~/.bashrc"),
    ("source <(tidelog completion zsh)", "the same for zsh, behind compinit"),
    ("tidelog completion fish > ~/.config/fish/completions/tidelog.fish", "for fish"),
)


def configure(parser: Parser) -> None:
    """The shell."""
    parser.add_argument(
        "shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    print({"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell]())
    return EXIT_OK


def words_after() -> dict[str, list[str]]:
    """What may follow each beginning of a command line: verbs, or options."""
    found: dict[str, list[str]] = {"": []}
    for words in COMMANDS:
        for depth, word in enumerate(words):
            begun = found.setdefault(" ".join(words[:depth]), [])
            if word not in begun:
                begun.append(word)
        found[" ".join(words)] = make_parser(words).option_names()
    return found


def bash() -> str:
    """For bash: the longest beginning that is a command decides."""
    cases = [f'    "{begun}") words="{" ".join(words)}" ;;' for begun, words in _cases()]
    return "\n".join(
        [
            "_tidelog() {",
            '  local current="${COMP_WORDS[COMP_CWORD]}" words=""',
            '  local begun="${COMP_WORDS[*]:1:COMP_CWORD-1}"',
            '  case "$(set -- $begun; echo "$1 $2")" in',
            *cases,
            "  esac",
            '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
            '  [ "${#COMPREPLY[@]}" -gt 0 ] || COMPREPLY=($(compgen -f -- "$current"))',
            "}",
            "complete -F _tidelog tidelog",
        ]
    )


def zsh() -> str:
    """For zsh, which runs bash's."""
    return "\n".join(["autoload -U +X bashcompinit && bashcompinit", bash()])


def fish() -> str:
    """For fish: one line a word."""
    lines = ["complete -c tidelog -f"]
    for words, entry in COMMANDS.items():
        if len(words) == 1:
            lines.append(_fish("__fish_use_subcommand", words[0], entry.summary))
        else:
            inside = f"__fish_seen_subcommand_from {words[0]}"
            lines.append(_fish("__fish_use_subcommand", words[0], ""))
            lines.append(_fish(inside, words[1], entry.summary))
        condition = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in words)
        for name in make_parser(words).option_names():
            kind = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
            lines.append(f"complete -c tidelog -n '{condition}' {kind}")
    return "\n".join(dict.fromkeys(lines))


def _fish(condition: str, word: str, summary: str) -> str:
    told = f' -d "{summary}"' if summary else ""
    return f"complete -c tidelog -n '{condition}' -a {word}{told}"


def _cases() -> list[tuple[str, list[str]]]:
    """As patterns of the first two words."""
    cases = []
    for begun, words in words_after().items():
        count = len(begun.split())
        is_command = tuple(begun.split()) in COMMANDS
        if count == 2 or not is_command:
            cases.append((begun if count == 2 else f"{begun} ", words))
        else:
            cases.append((f'{begun} "*"', words))
    return cases
