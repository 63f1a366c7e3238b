"""Settings of the listeners: where they are, what encrypts them, whom they let in.

Owns names, defaults and the rules between them. A listener off loopback that nothing encrypts is
refused unless the operator says that the network is trusted.
"""

import ipaddress
from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from tidelog.broker.services.middleware.node_callers import NODE_ID, SETTING, NodePrincipals
from tidelog.ports import ListenerLimits, TlsFiles
from tidelog.wire.errors import ErrorCode, TidelogError

EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})
_LOOPBACK: Final = {"localhost": "127.0.0.1"}


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Encryption. PEM files; they are read again when they change, without a restart."""

    certificate: Annotated[
        str,
        Meta(
            description="File with the listener's certificate, its intermediates behind it; "
            "empty: no encryption."
        ),
    ] = ""
    key: Annotated[str, Meta(description="File with its key, not encrypted.")] = ""
    client_ca: Annotated[
        str,
        Meta(description="File with the authorities whose certificates callers may prove."),
    ] = ""
    client_auth: Annotated[
        Literal["none", "required"],
        Meta(
            description="`required`: whoever has no certificate of `client_ca` cannot connect, and "
            "the subject of the certificate is the caller's principal."
        ),
    ] = "none"
    peer_ca: Annotated[
        str,
        Meta(
            description="Of the cluster listener only: file with the authorities of other nodes' "
            "certificates; empty: `client_ca`. To other nodes this node proves itself with "
            "`certificate`."
        ),
    ] = ""
    node_principal: Annotated[
        str,
        Meta(
            description="Of the cluster listener only: whom a node's certificate is for, with "
            "`{node_id}` where the node's id stands. `CN=tidelog-{node_id}` is compared with the "
            "whole subject; what does not begin with an attribute, such as "
            "`tidelog-{node_id}.example`, with the names in subjectAltName. A caller is then "
            "refused that speaks as another node than its certificate's. Empty: every certificate "
            "of `client_ca` may speak as any node."
        ),
    ] = ""

    @property
    def is_on(self) -> bool:
        """Whether the listener is encrypted."""
        return bool(self.certificate)


class ListenerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address to serve on, and how others are told to reach it."""

    bind: Annotated[
        str, Meta(description="`host:port` to listen on; port 0 picks a free one.", min_length=3)
    ]
    advertised: Annotated[
        str,
        Meta(description="`host:port` that others are told; empty: the address that was bound."),
    ] = ""
    tls: TlsSettings = TlsSettings()
    limits: ListenerLimits = ListenerLimits()

    def tls_files(self) -> TlsFiles | None:
        """In the network port's words; None: plaintext."""
        if not self.tls.is_on:
            return None
        is_asked = self.tls.client_auth == "required"
        return TlsFiles(
            certificate=self.tls.certificate,
            key=self.tls.key,
            authorities=self.tls.client_ca if is_asked else "",
        )


class Listeners(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the node can be reached."""

    client: Annotated[
        ListenerSettings, Meta(description="For programs that produce, consume and administer.")
    ] = ListenerSettings(bind="127.0.0.1:9192")
    cluster: Annotated[
        ListenerSettings,
        Meta(description="For the nodes of the cluster, this one included."),
    ] = ListenerSettings(bind="127.0.0.1:9193", tls=TlsSettings(client_auth="required"))

    def node_principals(self) -> NodePrincipals | None:
        """What binds certificates to node ids; None: nothing does."""
        template = self.cluster.tls.node_principal
        return NodePrincipals(template) if template else None

    def outbound_tls(self, node_id: int) -> TlsFiles | None:
        """What this node proves itself with to other nodes, and whom it believes; None: all nodes
        speak in plaintext with each other.
        """
        tls = self.cluster.tls
        if not tls.is_on:
            return None
        principals = self.node_principals()
        return TlsFiles(
            certificate=tls.certificate,
            key=tls.key,
            authorities=tls.peer_ca or tls.client_ca,
            # Where nodes do not ask each other for one, a server's certificate is enough.
            is_for_calling=tls.client_auth == "required",
            wanted_name="" if principals is None else principals.of(node_id),
        )


def check_listeners(listeners: Listeners, *, allow_plaintext: bool) -> Iterator[TidelogError]:
    """What contradicts itself; each INVALID_CONFIGURATION names the setting."""
    for name, listener in (("client", listeners.client), ("cluster", listeners.cluster)):
        yield from _check_tls(f"listeners.{name}.tls", listener.tls)
        is_exposed = not is_loopback(listener.bind)
        if is_exposed and not listener.tls.is_on and not allow_plaintext:
            yield _invalid(
                f"listeners.{name}.bind",
                f"`{listener.bind}` can be reached from outside this machine, and nothing "
                "encrypts it",
                f"Set certificate and key in [listeners.{name}.tls], bind 127.0.0.1, or set "
                "allow_plaintext = true if the network is trusted.",
            )
    if listeners.client.tls.peer_ca:
        yield _invalid(
            "listeners.client.tls.peer_ca",
            "nodes reach each other on the cluster listener",
            "Set it in [listeners.cluster.tls].",
        )
    if listeners.client.tls.node_principal:
        yield _invalid(
            "listeners.client.tls.node_principal",
            "nodes reach each other on the cluster listener",
            "Set it in [listeners.cluster.tls].",
        )
    yield from _check_principals(listeners.cluster.tls)
    cluster = listeners.cluster.tls
    if cluster.is_on and not (cluster.peer_ca or cluster.client_ca):
        yield _invalid(
            "listeners.cluster.tls.peer_ca",
            "it is empty, and so is client_ca: this node could not check any other",
            "Name the file with the authorities of the nodes' certificates.",
        )


def _check_principals(tls: TlsSettings) -> Iterator[TidelogError]:
    """Certificates that nobody asks for prove nothing, and one for every node proves no id."""
    template = tls.node_principal
    if not template:
        return
    if template.count(NODE_ID) != 1:
        yield _invalid(
            SETTING,
            f"`{template}` does not hold {NODE_ID} once",
            "Write how the nodes' certificates are called, such as `CN=tidelog-{node_id}`.",
        )
    if not tls.is_on or tls.client_auth != "required":
        yield _invalid(
            SETTING,
            "callers do not have to prove a certificate",
            'Set certificate, key and client_ca beside it, and client_auth = "required".',
        )


def _check_tls(path: str, tls: TlsSettings) -> Iterator[TidelogError]:
    if bool(tls.certificate) != bool(tls.key):
        given, missing = ("certificate", "key") if tls.certificate else ("key", "certificate")
        yield _invalid(f"{path}.{missing}", f"it is empty, and {given} is given", "Set both.")
    if not tls.is_on and (tls.client_ca or tls.peer_ca):
        yield _invalid(
            f"{path}.certificate",
            "it is empty, and an authority is given: the listener would not be encrypted",
            "Set certificate and key, or leave the authority out.",
        )
    if tls.is_on and tls.client_auth == "required" and not tls.client_ca:
        yield _invalid(
            f"{path}.client_ca",
            "it is empty, and client_auth is required: nobody could connect",
            "Name the file with the authorities of the callers' certificates.",
        )


def is_same_place(bind: str, other: str) -> bool:
    """Whether two listeners would want one port; port 0 is any free one."""
    host, _, port = bind.rpartition(":")
    other_host, _, other_port = other.rpartition(":")
    if int(port) != int(other_port) or not int(port):
        return False
    hosts = {_LOOPBACK.get(each, each) for each in (host.strip("[]"), other_host.strip("[]"))}
    return len(hosts) == 1 or not hosts.isdisjoint(EVERYWHERE)


def is_loopback(bind: str) -> bool:
    """Whether only this machine can reach the address."""
    host = bind.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # A name may stand for any address.
        return False


def _invalid(where: str, happened: str, hint: str) -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_CONFIGURATION, tried=f"read {where}", happened=happened, hint=hint
    )
