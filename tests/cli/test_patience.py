"""How long a command waits for the cluster, and who says so."""

import pytest

from tidelog.cli.frame.patience import VARIABLE, answer_timeout_ms, reach_timeout_ms
from tidelog.cli.main import main


@pytest.mark.parametrize(("text", "reach", "answer"), [("", 3_000, 10_000), (" 77 ", 77, 77)])
def test_a_command_waits_as_long_as_the_variable_says(
    text: str, reach: int, answer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert (reach_timeout_ms(), answer_timeout_ms()) == (reach, answer)


@pytest.mark.parametrize("text", ["soon", "0", "-1", "1.5", "9" * 30, "1e3", "\u0663"])
def test_a_time_that_is_none_is_named(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert main(["topic", "list", "-b", "127.0.0.1:1"]) == 2
    assert f"{VARIABLE}={text}" in capsys.readouterr().err
