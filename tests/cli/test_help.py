"""Help of every command, and the page that is made of it."""

import shutil
import subprocess
import sys

import pytest

from tests.cli.running import run_cli
from tests.support.waiting import HANG_SECONDS
from tidelog.cli.frame import completion, reference
from tidelog.cli.frame.commands import COMMANDS, GROUPS, load, make_parser
from tidelog.cli.frame.parser import HELP_WIDTH
from tidelog.cli.main import main
from tools.repository import TOP

HEAVY = ("grpc", "google", "msgspec", "asyncio", "tidelog.client", "tidelog.server")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_a_help_with_examples_of_itself(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--help"]) == 0
    text, errors = capsys.readouterr()
    assert errors == ""
    assert text.startswith(f"usage: tidelog {' '.join(words)}")
    assert max(map(len, text.splitlines())) <= HELP_WIDTH + 2
    for command, comment in load(words).EXAMPLES:
        assert f"tidelog {' '.join(words)}" in command
        assert f"  # {comment}\n  {command}\n" in text


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_options_of_every_example_are_options_of_the_command(words: tuple[str, ...]) -> None:
    parser = make_parser(words)
    for command, _ in parser.examples:
        typed = command.partition(f"tidelog {' '.join(words)}")[2].split()
        options = [word for word in typed if word.startswith("-") and not word[1:].isdigit()]
        assert set(options) <= set(parser.option_names()), command


def test_the_overview_names_every_command_and_group(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--help"], ["-h"], ["help"]):
        assert main(words) == 0
        text = capsys.readouterr().out
        assert all(f"  {' '.join(each)} " in text for each in COMMANDS)
    for group in GROUPS:
        assert main([group]) == 0
        assert f"usage: tidelog {group} COMMAND" in capsys.readouterr().out
    assert main(["help", "topic", "create"]) == 0
    assert "usage: tidelog topic create TOPIC" in capsys.readouterr().out


def test_the_version_is_printed_by_both_spellings(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("version", "--version"):
        assert main([word]) == 0
        assert capsys.readouterr().out.startswith("tidelog 0.")


def test_the_page_of_commands_says_what_the_commands_say() -> None:
    page = (TOP / "docs/cli.md").read_text("utf-8")
    assert page == reference.page(), "python -m tidelog.cli.frame.reference > docs/cli.md"


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_loads_nothing_heavy(words: tuple[str, ...]) -> None:
    program = (
        "import sys\nfrom tidelog.cli.main import main\n"
        f"code = main({[*words, '--help']!r})\n"
        f"print(code, [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    assert done.stderr == "0 []\n"


def test_completion_knows_every_word_and_option() -> None:
    for script in (completion.bash(), completion.zsh(), completion.fish()):
        for words in COMMANDS:
            assert all(word in script for word in words)
        assert "replication-factor" in script


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("tidelog to", "topic"),
        ("tidelog topic cr", "create"),
        ("tidelog topic create --part", "--partitions"),
        ("tidelog topic create orders --part", "--partitions"),
        ("tidelog consume orders --off", "--offset"),
    ],
)
def test_bash_completes_commands_and_options(typed: str, expected: str) -> None:
    shell = shutil.which("bash")
    if shell is None:
        pytest.skip("no bash here")
    words = typed.split()
    script = "\n".join(
        [
            completion.bash(),
            f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _tidelog",
            'echo "${COMPREPLY[@]}"',
        ]
    )
    done = subprocess.run(
        [shell, "-c", script], capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert done.stdout.split() == [expected], done.stderr


@pytest.mark.slow
@pytest.mark.live
def test_the_module_and_the_command_are_the_same() -> None:
    done = run_cli("--help")
    assert done.code == 0
    assert done.out.decode().startswith("usage: tidelog COMMAND")
