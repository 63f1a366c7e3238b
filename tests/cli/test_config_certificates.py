"""`tidelog config check`: whether a node's certificates are right for where it is reached."""

from pathlib import Path
from typing import Final

import pytest

from tests.cli.running import assert_three_lines
from tests.support.certificates import Authority, has_openssl
from tidelog.cli.main import main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_openssl(), reason="there is no openssl command"),
]
SETTINGS: Final = """
node_id = 3
[listeners.{listener}]
bind = "{bind}"
advertised = "{advertised}"
[listeners.{listener}.tls]
certificate = "{certificate}"
key = "{key}"
client_ca = "{authority}"
client_auth = "{client_auth}"
"""


def check(
    tmp_path: Path,
    names: tuple[str, ...],
    *,
    listener: str = "cluster",
    bind: str = "127.0.0.1:9393",
    advertised: str = "",
    is_ours: bool = True,
) -> int:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    pair = (ours if is_ours else theirs).issue("node", subject="/CN=node", names=names)
    file = tmp_path / "node.toml"
    file.write_text(
        SETTINGS.format(
            listener=listener,
            bind=bind,
            advertised=advertised,
            certificate=pair.certificate,
            key=pair.key,
            authority=ours.certificate if listener == "cluster" else "",
            client_auth="required" if listener == "cluster" else "none",
        )
    )
    return main(["config", "check", str(file)])


@pytest.mark.parametrize(
    ("names", "bind", "advertised"),
    [
        (("IP:127.0.0.1",), "127.0.0.1:9393", ""),
        (("DNS:n3.example",), "127.0.0.1:9393", "n3.example:9393"),
        (("DNS:*.shop.example",), "127.0.0.1:9393", "n3.shop.example:9393"),
    ],
)
@pytest.mark.parametrize("listener", ["client", "cluster"])
def test_a_certificate_for_the_address_that_is_advertised_is_right(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    listener: str,
    names: tuple[str, ...],
    bind: str,
    advertised: str,
) -> None:
    assert check(tmp_path, names, listener=listener, bind=bind, advertised=advertised) == 0
    assert "is right" in capsys.readouterr().out


@pytest.mark.parametrize("listener", ["client", "cluster"])
@pytest.mark.parametrize(
    ("names", "advertised", "host"),
    [
        (("DNS:elsewhere.example",), "", "127.0.0.1"),
        (("IP:127.0.0.1",), "n3.example:9393", "n3.example"),
    ],
)
def test_a_certificate_for_another_host_is_told(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    listener: str,
    names: tuple[str, ...],
    advertised: str,
    host: str,
) -> None:
    assert check(tmp_path, names, listener=listener, advertised=advertised) == 2
    error = capsys.readouterr().err
    assert f"listener {listener} at {host}" in error
    assert_three_lines(error, why="mismatch", hint=f"issued for {host}")


def test_a_certificate_that_the_other_nodes_would_not_believe_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path, ("IP:127.0.0.1",), is_ours=False) == 2
    assert_three_lines(capsys.readouterr().err, why="issuer certificate", hint="ours.pem")
