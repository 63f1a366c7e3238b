"""Whom certificates are for: told alike of one's own and of a caller's, and held against a name."""

import asyncio

import msgspec
import pytest

from tests.support.certificates import Authority, has_openssl
from tidelog.ports import CertificateNames, Listener, RequestContext, UnaryMethod
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.network.network import GrpcNetwork
from tidelog.ports.real.tls.files import prove, read
from tidelog.wire.errors import ErrorCode, TidelogError

pytestmark = pytest.mark.skipif(not has_openssl(), reason="there is no openssl command")

WHO = "/tidelog.test.Service/Who"
TIMEOUT_MS = 20_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Made once: nothing in it is changed."""
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize(
    ("subject", "told"),
    [
        ("/O=Example, Inc/CN=tidelog-2", "CN=tidelog-2,O=Example\\, Inc"),
        ("/DC=org/UID=u/CN=a+OU=b", "OU=b+CN=a,UID=u,DC=org"),
        ("/C=DE/ST=x/L=y/SN=s/GN=g/CN=Zo\xeb", ""),
        ('/CN= a<b>;"\\\\ /O=#x', ""),
        ("/", ""),
    ],
)
def test_a_node_tells_its_own_subject_and_names_as_it_sees_those_of_its_callers(
    authority: Authority, subject: str, told: str
) -> None:
    """So that what is wanted of a certificate can be looked at on either side."""
    names = ("DNS:node-2.example", "URI:spiffe://example/node/2", "IP:127.0.0.1")
    pair = authority.issue("named", subject=subject, names=names)
    files = pair.files(authority.certificate)
    found: list[CertificateNames] = []

    async def look(context: RequestContext, message: bytes) -> bytes:
        found.append(context.certificate)
        return message

    async def run() -> None:
        network = GrpcNetwork(RealClock(), outbound=files)
        listener = Listener(
            name="cluster",
            bind="127.0.0.1:0",
            tls=authority.issue("node").files(authority.certificate),
            requires_client_certificate=True,
        )
        server = await network.serve(listener, {WHO: UnaryMethod(look)})
        try:
            await network.call(server.address, WHO, b"", timeout_ms=TIMEOUT_MS)
        finally:
            await server.stop(0)
            await network.close()

    asyncio.run(run())
    own = prove(files, read(files, "a test"), "a test")
    assert (own.subject, own.names) == (found[0].subject, found[0].names)
    assert own.names == tuple(each.partition(":")[2] for each in names)
    if told:
        assert own.subject == told


@pytest.mark.parametrize("wanted", ["CN=node-2", "node-2.example", "spiffe://example/node/2"])
def test_a_certificate_that_is_for_somebody_else_is_not_used(
    authority: Authority, wanted: str
) -> None:
    names = ("DNS:node-1.example", "URI:spiffe://example/node/1", "DNS:CN=node-2")
    pair = authority.issue("one", subject="/CN=node-1", names=names)
    own = wanted.replace("2", "1")
    for name in (own, wanted):
        files = msgspec.structs.replace(pair.files(), wanted_name=name)
        if name == own:
            prove(files, read(files, "a test"), "a test")
            continue
        with pytest.raises(TidelogError) as caught:
            prove(files, read(files, "a test"), "a test")
        assert caught.value.code is ErrorCode.INVALID_CONFIGURATION
        assert caught.value.happened.endswith(f"; wanted is {wanted}")
        assert own in caught.value.happened
