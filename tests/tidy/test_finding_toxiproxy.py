"""Where a Toxiproxy server is looked for, in which order, and what is said when there is none."""

from pathlib import Path

import pytest

from tests.support import toxiproxy


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDELOG_TOXIPROXY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def _program(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_an_address_comes_before_a_program_on_path_before_one_that_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = _program(tmp_path / "tools/server")
    assert toxiproxy.find_server(built) == str(built)
    on_path = _program(tmp_path / "toxiproxy-server")
    assert toxiproxy.find_server(built) == str(on_path)
    monkeypatch.setenv("TIDELOG_TOXIPROXY", "127.0.0.1:8474")
    assert toxiproxy.find_server(built) == "http://127.0.0.1:8474"


def test_without_server_and_go_one_line_names_the_ways_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(toxiproxy.ToxiproxyMissingError) as caught:
        toxiproxy.find_server(tmp_path / "tools/server")
    message = str(caught.value)
    assert "\n" not in message
    assert "TIDELOG_TOXIPROXY" in message
    assert "toxiproxy-server" in message


def test_a_build_that_fails_ends_with_the_last_line_of_go(tmp_path: Path) -> None:
    _program(tmp_path / "go").write_text("#!/bin/sh\necho no such host >&2\nexit 1\n")
    with pytest.raises(toxiproxy.ToxiproxyMissingError, match=r"failed: no such host$"):
        toxiproxy.find_server(tmp_path / "tools/server")


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("", False), ("false", False)])
def test_only_continuous_integration_demands_the_server(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: bool
) -> None:
    monkeypatch.setenv("CI", value)
    assert toxiproxy.is_required() is expected
