"""Encrypted listeners and connections: who proves what, and what each mistake is called."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tests.support.certificates import Authority, Pair, encrypt_key, has_openssl
from tests.support.waiting import HANG_MS
from tidelog.ports import (
    CertificateNews,
    DeathHint,
    Listener,
    Method,
    PeerUnreachable,
    RequestContext,
    Stream,
    StreamMethod,
    TlsFiles,
    UnaryMethod,
)
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.network.network import GrpcNetwork
from tidelog.ports.real.network.server import GrpcServer
from tidelog.ports.real.network.tls import RealCertificates
from tidelog.ports.real.tls.files import Identity, Material, WatchedFiles, prove, read
from tidelog.ports.request_context import ANONYMOUS
from tidelog.wire.errors import ErrorCode, TidelogError

pytestmark = pytest.mark.skipif(not has_openssl(), reason="there is no openssl command")

WHO = "/tidelog.test.Service/Who"
ECHO = "/tidelog.test.Service/Echo"


class Shop:
    """Certificates of one test."""

    def __init__(self, directory: Path) -> None:
        self.ours = Authority(directory, "ours")
        self.node = self.ours.issue("node")
        self.alice = self.ours.issue("alice", subject="/O=Example/CN=alice")
        self.trust = TlsFiles(authorities=str(self.ours.certificate))
        self.mutual = self.alice.files(self.ours.certificate)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Made once: nothing in it is changed."""
    return Shop(tmp_path_factory.mktemp("certificates"))


async def who(context: RequestContext, message: bytes) -> bytes:
    """The principal."""
    del message
    return context.principal.encode()


async def echo_all(_: RequestContext, stream: Stream) -> None:
    """Each message back."""
    while (message := await stream.receive()) is not None:
        await stream.send(message)


@asynccontextmanager
async def serving(
    files: TlsFiles | None, *, is_mutual: bool = False
) -> AsyncIterator[tuple[GrpcServer, GrpcNetwork]]:
    """A listener, and the network that it belongs to."""
    network = GrpcNetwork(RealClock())
    listener = Listener(
        name="client", bind="127.0.0.1:0", tls=files, requires_client_certificate=is_mutual
    )
    methods: dict[str, Method] = {WHO: UnaryMethod(who), ECHO: StreamMethod(echo_all)}
    server = await network.serve(listener, methods)
    try:
        yield server, network
    finally:
        await server.stop(0)
        await network.close()


async def ask(address: str, files: TlsFiles | None) -> str:
    """Who the listener takes a fresh caller for."""
    network = GrpcNetwork(RealClock(), outbound=files)
    try:
        return (await network.call(address, WHO, b"", timeout_ms=HANG_MS)).decode()
    finally:
        await network.close()


def refusal(
    node: TlsFiles | None, caller: TlsFiles | None, *, is_mutual: bool = False, host: str = ""
) -> PeerUnreachable:
    """What a caller is told that cannot connect."""

    async def run() -> PeerUnreachable:
        async with serving(node, is_mutual=is_mutual) as (server, _):
            address = server.address
            if host:
                address = f"{host}:{address.rpartition(':')[2]}"
            with pytest.raises(PeerUnreachable) as caught:
                await ask(address, caller)
            return caught.value

    return asyncio.run(run())


def test_a_caller_without_a_certificate_is_anonymous(shop: Shop) -> None:
    async def run() -> str:
        async with serving(shop.node.files()) as (server, _):
            return await ask(server.address, shop.trust)

    assert asyncio.run(run()) == ANONYMOUS


def test_the_subject_of_a_callers_certificate_is_the_principal(shop: Shop) -> None:
    async def run() -> str:
        async with serving(shop.node.files(shop.ours.certificate), is_mutual=True) as (server, _):
            return await ask(server.address, shop.mutual)

    assert asyncio.run(run()) == "CN=alice,O=Example"


def test_a_certificate_without_a_subject_counts_by_its_first_name(
    shop: Shop, tmp_path: Path
) -> None:
    nameless = Authority(tmp_path).issue("nameless", subject="/", names=("DNS:job.example",))
    authorities = tmp_path / "authority.pem"

    async def run() -> str:
        async with serving(shop.node.files(authorities), is_mutual=True) as (server, _):
            files = nameless.files(shop.ours.certificate)
            return await ask(server.address, files)

    assert asyncio.run(run()) == "job.example"


def test_streams_work_encrypted(shop: Shop) -> None:
    async def run() -> bytes | None:
        async with serving(shop.node.files()) as (server, _):
            network = GrpcNetwork(RealClock(), outbound=shop.trust)
            try:
                stream = network.stream(server.address, ECHO)
                await stream.send(b"x" * 100_000)
                return await stream.receive()
            finally:
                await network.close()

    assert asyncio.run(run()) == b"x" * 100_000


def test_a_certificate_for_another_host_is_refused(shop: Shop) -> None:
    elsewhere = shop.ours.issue("elsewhere", names=("DNS:elsewhere.example",))
    error = refusal(elsewhere.files(), shop.trust)
    assert "its certificate is for another host name" in error.happened
    assert error.death_hint is DeathHint.NONE


@pytest.mark.parametrize("way", ["send", "receive"])
def test_a_stream_that_never_came_to_be_is_told_as_a_call_is(shop: Shop, way: str) -> None:
    elsewhere = shop.ours.issue("elsewhere", names=("DNS:elsewhere.example",))

    async def use(stream: Stream) -> None:
        while True:
            await (stream.send(b"x") if way == "send" else stream.receive())

    async def run() -> str:
        async with serving(elsewhere.files()) as (server, _):
            network = GrpcNetwork(RealClock(), outbound=shop.trust)
            stream = network.stream(server.address, ECHO)
            try:
                with pytest.raises(PeerUnreachable):
                    await use(stream)
                (news,) = network.certificates.refresh()
                assert news.peer == server.address
                assert news.refusal is not None
                return news.refusal.happened
            finally:
                await network.close()

    assert "its certificate is for another host name" in asyncio.run(run())


def test_an_unknown_authority_is_refused(shop: Shop, tmp_path: Path) -> None:
    theirs = Authority(tmp_path, "theirs")
    error = refusal(shop.node.files(), TlsFiles(authorities=str(theirs.certificate)))
    assert "an authority that is not trusted here" in error.happened
    assert error.death_hint is DeathHint.NONE


def test_a_caller_without_the_certificate_that_is_required_is_refused_by_a_living_peer(
    shop: Shop,
) -> None:
    error = refusal(shop.node.files(shop.ours.certificate), shop.trust, is_mutual=True)
    assert "does not accept this client's certificate" in error.happened
    assert error.death_hint is DeathHint.NONE


def test_a_caller_of_another_authority_is_refused_by_a_living_peer(
    shop: Shop, tmp_path: Path
) -> None:
    mallory = Authority(tmp_path, "theirs").issue("mallory")
    caller = mallory.files(shop.ours.certificate)
    error = refusal(shop.node.files(shop.ours.certificate), caller, is_mutual=True)
    assert "does not accept this client's certificate" in error.happened
    assert error.death_hint is DeathHint.NONE


def test_a_peer_in_plaintext_is_named_as_such(shop: Shop) -> None:
    error = refusal(None, shop.trust)
    assert "what listens there does not speak TLS" in error.happened
    assert error.death_hint is DeathHint.NONE


def test_a_proxy_without_a_peer_behind_it_is_closed_early_with_tls_as_well(shop: Shop) -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(16)
        writer.close()

    async def run() -> DeathHint:
        server = await asyncio.start_server(close, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server:
            with pytest.raises(PeerUnreachable) as caught:
                await ask(f"{host}:{port}", shop.trust)
            return caught.value.death_hint

    assert asyncio.run(run()) is DeathHint.CLOSED_EARLY


def copy_of(pair: Pair, directory: Path) -> Pair:
    """Files that a test may change."""
    mine = Pair(directory / "current.pem", directory / "current.key")
    mine.replace(pair)
    return mine


def test_a_listener_uses_new_files_without_a_restart(shop: Shop, tmp_path: Path) -> None:
    current = copy_of(shop.ours.issue("elsewhere", names=("DNS:elsewhere.example",)), tmp_path)

    async def run() -> None:
        async with serving(current.files()) as (server, network):
            assert network.certificates.refresh() == []
            with pytest.raises(PeerUnreachable):
                await ask(server.address, shop.trust)
            current.replace(shop.node)
            (news,) = network.certificates.refresh()
            assert (news.user, news.subject, news.refusal) == ("listener client", "CN=node", None)
            assert news.names == ("127.0.0.1", "localhost")
            assert await ask(server.address, shop.trust) == ANONYMOUS
            assert network.certificates.refresh() == []

    asyncio.run(run())


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        ("half written", "cannot be read"),
        ("another key", "is not its key"),
        ("expired", "has expired"),
        ("gone", "No such file"),
        ("empty", "it is empty"),
        ("encrypted key", "is encrypted"),
    ],
)
def test_a_broken_new_file_keeps_the_old_one_and_is_told_once(
    shop: Shop, tmp_path: Path, break_it: str, reason: str
) -> None:
    current = copy_of(shop.node, tmp_path)

    async def run() -> None:
        async with serving(current.files()) as (server, network):
            _break(break_it, current, shop)
            (news,) = network.certificates.refresh()
            assert news.refusal is not None
            assert reason in news.refusal.happened
            assert str(tmp_path) in str(news.refusal)
            assert network.certificates.refresh() == []
            assert await ask(server.address, shop.trust) == ANONYMOUS
            current.replace(shop.ours.issue("renewed"))
            (news,) = network.certificates.refresh()
            assert (news.subject, news.refusal) == ("CN=renewed", None)
            assert await ask(server.address, shop.trust) == ANONYMOUS

    asyncio.run(run())


def _break(how: str, current: Pair, shop: Shop) -> None:
    if how == "half written":
        whole = current.certificate.read_bytes()
        current.certificate.write_bytes(whole[: len(whole) // 2])
    elif how == "another key":
        current.key.write_bytes(shop.alice.key.read_bytes())
    elif how == "expired":
        current.replace(shop.ours.issue("expired", days=-1))
    elif how == "gone":
        current.certificate.unlink()
    elif how == "empty":
        current.key.write_bytes(b"")
    else:
        encrypt_key(current.key)


def test_a_refused_file_is_taken_once_it_can_be_used_though_it_has_not_changed(
    shop: Shop, tmp_path: Path
) -> None:
    current = copy_of(shop.node, tmp_path)
    reasons: list[str] = []

    def proof(files: TlsFiles, material: Material, user: str) -> Identity:
        if reasons:
            raise TidelogError(
                ErrorCode.INVALID_CONFIGURATION, tried="use it", happened=reasons.pop(0)
            )
        return prove(files, material, user)

    watched = WatchedFiles("listener client", current.files(), proof)
    current.replace(shop.alice)
    reasons += ["it is not yet valid"] * 2 + ["it went"]
    told = [_told(watched.refresh()) for _ in range(5)]
    assert told == ["it is not yet valid", "", "it went", "uses CN=alice,O=Example", ""]
    assert watched.generation == 1


def _told(news: CertificateNews | None) -> str:
    if news is None:
        return ""
    return f"uses {news.subject}" if news.refusal is None else news.refusal.happened


@pytest.mark.parametrize("gone", ["certificate", "key"])
def test_a_file_that_goes_while_it_is_looked_at_is_refused_in_our_words(
    shop: Shop, tmp_path: Path, gone: str
) -> None:
    current = copy_of(shop.node, tmp_path)
    material = read(current.files(), "listener client")
    (current.key if gone == "key" else current.certificate).unlink()
    with pytest.raises(TidelogError) as caught:
        prove(current.files(), material, "listener client")
    assert caught.value.code is ErrorCode.INVALID_CONFIGURATION
    assert str(current.certificate) in caught.value.tried
    assert "while it was looked at: No such file" in caught.value.happened


@pytest.mark.parametrize(
    ("uses", "is_for_calling", "refused"),
    [
        ("serverAuth", False, ""),
        ("serverAuth", True, "clientAuth"),
        ("clientAuth", False, "serverAuth"),
        ("clientAuth", True, ""),
        ("serverAuth,clientAuth", False, ""),
        ("serverAuth,clientAuth", True, ""),
    ],
)
def test_a_certificate_is_proved_for_the_end_that_shows_it(
    tmp_path: Path, uses: str, is_for_calling: bool, refused: str
) -> None:
    files = Authority(tmp_path).issue("narrow", uses=uses).files()
    files = msgspec.structs.replace(files, is_for_calling=is_for_calling)
    if not refused:
        assert prove(files, read(files, "a test"), "a test").subject == "CN=narrow"
        return
    with pytest.raises(TidelogError) as caught:
        prove(files, read(files, "a test"), "a test")
    assert caught.value.happened == "unsuitable certificate purpose"
    assert refused in caught.value.hint


def test_a_renewed_certificate_that_peers_would_not_take_from_a_caller_is_refused(
    shop: Shop, tmp_path: Path
) -> None:
    current = copy_of(shop.node, tmp_path)
    outbound = msgspec.structs.replace(current.files(shop.ours.certificate), is_for_calling=True)
    certificates = RealCertificates(outbound)
    current.replace(shop.ours.issue("server-only", uses="serverAuth"))
    (news,) = certificates.refresh()
    assert news.refusal is not None
    assert "clientAuth" in news.refusal.hint
    assert certificates.outbound is not None
    assert certificates.outbound.identity.subject == "CN=node"


def test_a_connection_to_a_node_uses_new_files_and_open_streams_stay(
    shop: Shop, tmp_path: Path
) -> None:
    current = copy_of(shop.alice, tmp_path)

    async def run() -> list[str]:
        async with serving(shop.node.files(shop.ours.certificate), is_mutual=True) as (server, _):
            network = GrpcNetwork(RealClock(), outbound=current.files(shop.ours.certificate))
            try:
                seen = [await network.call(server.address, WHO, b"", timeout_ms=HANG_MS)]
                stream = network.stream(server.address, ECHO)
                await stream.send(b"before")
                assert await stream.receive() == b"before"
                current.replace(shop.ours.issue("bob"))
                (news,) = network.certificates.refresh()
                assert news.user == "connections to nodes"
                seen.append(await network.call(server.address, WHO, b"", timeout_ms=HANG_MS))
                await stream.send(b"after")
                assert await stream.receive() == b"after"
                return [each.decode() for each in seen]
            finally:
                await network.close()

    assert asyncio.run(run()) == ["CN=alice,O=Example", "CN=bob"]


def test_a_peer_that_no_connection_comes_to_is_told_once_until_one_does(
    shop: Shop, tmp_path: Path
) -> None:
    elsewhere = shop.ours.issue("astray", names=("DNS:elsewhere.example",))
    current = copy_of(elsewhere, tmp_path)

    async def run() -> None:
        async with serving(current.files()) as (server, network):
            caller = GrpcNetwork(RealClock(), outbound=shop.trust)
            try:
                for _ in range(2):
                    with pytest.raises(PeerUnreachable):
                        await caller.call(server.address, WHO, b"", timeout_ms=HANG_MS)
                (news,) = caller.certificates.refresh()
                assert news.peer == server.address
                assert news.refusal is not None
                assert "another host name" in news.refusal.happened
                assert caller.certificates.refresh() == []
                current.replace(shop.node)
                network.certificates.refresh()
                await _call_until_it_works(caller, server.address)
                assert caller.certificates.refresh() == []
                assert caller.certificates.troubled_peers == ()
            finally:
                await caller.close()

    asyncio.run(run())


async def _call_until_it_works(caller: GrpcNetwork, address: str) -> None:
    async with asyncio.timeout(HANG_MS / 1000):
        while True:
            try:
                await caller.call(address, WHO, b"", timeout_ms=HANG_MS)
            except PeerUnreachable:
                # gRPC repeats a failure until its wait between attempts is over.
                continue
            return


def start_error(files: TlsFiles) -> TidelogError:
    """Why a listener does not start."""

    async def run() -> TidelogError:
        with pytest.raises(TidelogError) as caught:
            async with serving(files):
                pass
        return caught.value

    return asyncio.run(run())


def test_a_listener_does_not_start_with_files_that_no_caller_would_accept(
    shop: Shop, tmp_path: Path
) -> None:
    missing = start_error(TlsFiles(certificate=str(tmp_path / "no.pem"), key="no.key"))
    assert "no.pem (certificate) for listener client" in missing.tried
    expired = start_error(shop.ours.issue("expired", days=-1).files())
    assert (expired.code, expired.happened) == (
        ErrorCode.INVALID_CONFIGURATION,
        "the certificate has expired",
    )
    no_authorities = start_error(shop.node.files(shop.node.key))
    assert "holds no certificates" in no_authorities.happened
