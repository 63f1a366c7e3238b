"""Certificates bound to node ids, with processes: what fits serves, what does not is told why."""

from pathlib import Path

import pytest

from tests.cli.local_cluster import CLUSTER_ID, LocalCluster
from tests.cli.running import run_cli
from tests.support.certificates import Authority, Pair, has_openssl

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_openssl(), reason="there is no openssl command"),
]

PRINCIPAL = "CN=tidelog-{node_id}"


def encrypt(
    cluster: LocalCluster, node: int, authority: Authority, own: Pair, principal: str = PRINCIPAL
) -> None:
    """Let the node prove itself by this certificate on the cluster listener."""
    file = cluster.file(node)
    text = file.read_text("utf-8")
    if node != 1:
        text = f'roles = ["broker"]\n{text}'
    file.write_text(
        f'{text}[listeners.cluster.tls]\ncertificate = "{own.certificate}"\nkey = "{own.key}"\n'
        f'client_ca = "{authority.certificate}"\nnode_principal = "{principal}"\n',
        encoding="utf-8",
    )


def test_a_node_that_proves_itself_by_anothers_certificate_is_refused_and_told_why(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    own = {node: authority.issue(f"node{node}", subject=f"/CN=tidelog-{node}") for node in (1, 2)}
    cluster = LocalCluster(tmp_path, 3)
    encrypt(cluster, 1, authority, own[1])
    encrypt(cluster, 2, authority, own[2])
    # It checks nobody, so not itself either: as a thief of node 2's certificate would.
    encrypt(cluster, 3, authority, own[2], principal="")
    cluster.format_voters(1)
    cluster.format(2, "-C", CLUSTER_ID, "--broker-only")
    cluster.format(3, "-C", CLUSTER_ID, "--broker-only")
    try:
        cluster.start(1, 2)
        cluster.begin(3)
        cluster.wait_logged(1, "node_refused")
        lines = cluster.log(1).read_text("utf-8").splitlines()
        refused = next(line for line in lines if "node_refused" in line)
        assert "WARNING" in refused
        assert "as node 3" in refused
        assert 'certificate="subject CN=tidelog-2"' in refused
        cluster.wait_logged(3, "listeners.cluster.tls.node_principal")
        told = cluster.log(3).read_text("utf-8")
        assert "PERMISSION_DENIED" in told
        assert "the caller's certificate has subject CN=tidelog-2" in told
        assert "would have to be CN=tidelog-3" in told
        brokers = cluster.run("broker", "list").out.decode().splitlines()
        assert [line.split()[0] for line in brokers[1:]] == ["1", "2"]
    finally:
        cluster.close()


@pytest.mark.parametrize("how", ["check", "start"])
def test_a_certificate_that_does_not_fit_the_own_id_is_a_mistake_told_before_anything_starts(
    tmp_path: Path, how: str
) -> None:
    authority = Authority(tmp_path)
    cluster = LocalCluster(tmp_path, 1)
    encrypt(cluster, 1, authority, authority.issue("node2", subject="/CN=tidelog-2"))
    cluster.format_voters(1)
    words = ("config", "check") if how == "check" else ("server", "--config")
    done = run_cli(*words, str(cluster.file(1)))
    assert done.code != 0
    assert "it has subject CN=tidelog-2; wanted is CN=tidelog-1" in done.err
