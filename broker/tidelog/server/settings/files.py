"""The files that a configuration names: whether a node could use them. Reads, and writes nothing.

Owns no rule of its own: what a certificate must be, the adapter that serves with it decides.
"""

from collections.abc import Iterator

from tidelog.ports import TlsFiles
from tidelog.ports.real.tls import files as tls_files
from tidelog.server.settings.configuration import NodeConfiguration
from tidelog.server.settings.listeners import EVERYWHERE
from tidelog.wire.errors import TidelogError


def unusable_files(configuration: NodeConfiguration) -> list[TidelogError]:
    """Why certificates, keys and authorities would be refused at the start; each file once."""
    listeners = configuration.listeners
    users: list[tuple[str, TlsFiles | None]] = [
        ("listener client", listeners.client.tls_files()),
        ("listener cluster", listeners.cluster.tls_files()),
        ("calls to other nodes", listeners.outbound_tls(configuration.node_id)),
    ]
    found: dict[str, TidelogError] = {}
    for user, files in users:
        if files is None:
            continue
        try:
            tls_files.prove(files, tls_files.read(files, user), user)
        except TidelogError as error:
            found.setdefault(error.happened + files.certificate, error)
    if not found:
        return list(_misplaced(configuration))
    return list(found.values())


def _misplaced(configuration: NodeConfiguration) -> Iterator[TidelogError]:
    """Certificates that those would refuse who connect by the advertised address."""
    listeners = configuration.listeners
    cluster = listeners.cluster.tls
    for name, listener, authorities in (
        # Which authorities a client trusts only the client knows.
        ("client", listeners.client, ""),
        ("cluster", listeners.cluster, cluster.peer_ca or cluster.client_ca),
    ):
        files = listener.tls_files()
        host = (listener.advertised or listener.bind).rpartition(":")[0].strip("[]")
        if files is None or host in EVERYWHERE:
            continue
        try:
            tls_files.prove_place(files, f"listener {name}", host, authorities)
        except TidelogError as error:
            yield error
