"""Settings: precedence, bounds, and errors that name what to correct."""

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.replication.shared.messages import DEFAULT_REPLICATION_LIMITS
from tidelog.cli.node.settings import toml_value
from tidelog.ports import TlsFiles
from tidelog.server.settings.configuration import NodeConfiguration
from tidelog.server.settings.loading import examine, load, settings
from tidelog.v1 import options_pb2
from tidelog.wire.errors import ErrorCode, TidelogError


def refusal(**arguments: object) -> TidelogError:
    """Why these settings are refused."""
    with pytest.raises(TidelogError) as caught:
        load(**arguments)  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.INVALID_CONFIGURATION
    return caught.value


def test_nothing_given_gives_the_defaults() -> None:
    assert load() == NodeConfiguration()


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() -> None:
    text = "rack = 'file'\n[produce]\ntimeout_ms = 5\n[fetch]\nwait_ms_max = 7\n"
    environment = {"TIDELOG_RACK": "environment", "TIDELOG_PRODUCE_TIMEOUT_MS": "6"}
    found = load(file_text=text, environment=environment, flags={"rack": "flag"})
    assert found.rack == "flag"
    assert found.produce.timeout_ms == 6
    assert found.fetch.wait_ms_max == 7
    assert found.fetch.positions_max == 10_000


def test_every_setting_has_words_a_default_and_a_variable_of_its_own() -> None:
    found = settings()
    assert all(setting.description for setting in found)
    variables = [setting.variable for setting in found]
    assert len(dict.fromkeys(variables)) == len(variables)
    assert "TIDELOG_LISTENERS_CLIENT_BIND" in variables
    bind = next(setting for setting in found if setting.path == "listeners.cluster.bind")
    assert bind.default == "127.0.0.1:9193"


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("nod_id = 1", "node_id"),
        ("[produce]\ntimeout = 1", "produce.timeout_ms"),
        ("[listeners.client]\nbnd = 'x'", "listeners.client.bind"),
        ("[listners.client]\nbind = 'x'", "listeners.client.bind"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_name(text: str, near: str) -> None:
    error = refusal(file_text=text, file_name="node.toml")
    assert "node.toml" in error.tried
    assert f"`{near}`" in error.hint or text.startswith("[listners")


def test_a_misspelt_variable_is_refused_and_a_foreign_one_is_not() -> None:
    error = refusal(environment={"TIDELOG_PRODUCE_TIMEOUTMS": "5"})
    assert "TIDELOG_PRODUCE_TIMEOUT_MS" in error.hint
    assert load(environment={"TIDELOG_BOOTSTRAP": "x:1", "HOME": "/"}) == NodeConfiguration()


@pytest.mark.parametrize(
    "wrong",
    [
        {"file_text": "node_id = 'one'"},
        {"file_text": "node_id = 0"},
        {"file_text": "produce = 3"},
        {"file_text": "node_id ="},
        {"environment": {"TIDELOG_NODE_ID": "many"}},
        {"environment": {"TIDELOG_PRODUCE_QUEUED_BYTES_MAX": "1"}},
        {"flags": {"listeners.client.bind": "localhost"}},
        {"flags": {"listeners.client.bind": "127.0.0.1:99999"}},
        {"file_text": "default_partitions = 9\n[topics]\npartitions_max = 4"},
        {"file_text": "data_dir = 'd'\nlog_dirs = ['./d/']"},
        {"file_text": "log_dirs = ['e', 'f', 'e/']"},
        {"file_text": "log_dirs = ['']"},
    ],
)
def test_a_value_that_does_not_fit_is_refused(wrong: dict[str, object]) -> None:
    assert refusal(**wrong).happened


@pytest.mark.parametrize("address", ["0.0.0.0:9192", "10.0.0.1:9192", "[::]:9192", "broker:9192"])
def test_plaintext_off_loopback_is_refused_unless_it_is_allowed(address: str) -> None:
    flags = {"listeners.client.bind": address}
    assert "allow_plaintext" in refusal(flags=flags).hint
    assert load(flags={**flags, "allow_plaintext": "true"}).listeners.client.bind == address


@pytest.mark.parametrize("address", ["127.evil.example:9192", "localhost.example:9192"])
def test_a_name_that_only_looks_like_loopback_is_not(address: str) -> None:
    assert "allow_plaintext" in refusal(flags={"listeners.client.bind": address}).hint


TLS = {"listeners.client.tls.certificate": "c.pem", "listeners.client.tls.key": "c.key"}
CLUSTER_TLS = {
    "listeners.cluster.tls.certificate": "n.pem",
    "listeners.cluster.tls.key": "n.key",
    "listeners.cluster.tls.client_ca": "ca.pem",
}


def test_an_encrypted_listener_may_be_off_loopback() -> None:
    flags = {"listeners.client.bind": "0.0.0.0:9192", **TLS}
    found = load(flags=flags).listeners.client
    assert found.tls_files() == TlsFiles(certificate="c.pem", key="c.key")


def test_nodes_want_each_others_certificates_and_clients_none_if_nothing_is_said() -> None:
    listeners = load(flags={**TLS, **CLUSTER_TLS}).listeners
    assert (listeners.client.tls.client_auth, listeners.cluster.tls.client_auth) == (
        "none",
        "required",
    )
    outbound = TlsFiles(certificate="n.pem", key="n.key", authorities="ca.pem", is_for_calling=True)
    assert listeners.outbound_tls(1) == outbound


def test_a_node_wants_its_own_certificate_to_be_for_its_own_id_where_ids_are_bound() -> None:
    flags = {**CLUSTER_TLS, "listeners.cluster.tls.node_principal": "CN=n{node_id}"}
    outbound = load(flags=flags).listeners.outbound_tls(7)
    assert outbound is not None
    assert outbound.wanted_name == "CN=n7"


@pytest.mark.parametrize(
    ("given", "happened"),
    [
        ({"listeners.cluster.tls.node_principal": "CN=n"}, "does not hold {node_id} once"),
        (
            {"listeners.cluster.tls.node_principal": "CN={node_id},O={node_id}"},
            "does not hold {node_id} once",
        ),
        (
            {
                "listeners.cluster.tls.node_principal": "n{node_id}",
                "listeners.cluster.tls.client_auth": "none",
            },
            "do not have to prove a certificate",
        ),
        ({"listeners.client.tls.node_principal": "n{node_id}"}, "on the cluster listener"),
    ],
)
def test_a_binding_that_proves_nothing_is_a_mistake(given: dict[str, str], happened: str) -> None:
    error = refusal(flags={**CLUSTER_TLS, **given})
    assert "node_principal" in error.tried
    assert happened in error.happened
    assert error.hint


def test_plaintext_cannot_be_bound_to_node_ids() -> None:
    error = refusal(flags={"listeners.cluster.tls.node_principal": "n{node_id}"})
    assert "do not have to prove a certificate" in error.happened


def test_a_listener_that_asks_nobody_trusts_nobody() -> None:
    flags = {**CLUSTER_TLS, "listeners.cluster.tls.client_auth": "none"}
    cluster = load(flags=flags).listeners
    assert cluster.cluster.tls_files() == TlsFiles(certificate="n.pem", key="n.key")
    assert cluster.outbound_tls(1) == TlsFiles(
        certificate="n.pem", key="n.key", authorities="ca.pem"
    )


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"listeners.client.tls.certificate": "c.pem"}, "client.tls.key"),
        ({"listeners.client.tls.key": "c.key"}, "client.tls.certificate"),
        ({"listeners.client.tls.client_ca": "ca.pem"}, "client.tls.certificate"),
        ({**TLS, "listeners.client.tls.client_auth": "required"}, "client.tls.client_ca"),
        ({**TLS, "listeners.client.tls.client_auth": "maybe"}, "client.tls.client_auth"),
        ({**TLS, "listeners.client.tls.peer_ca": "ca.pem"}, "client.tls.peer_ca"),
        ({**CLUSTER_TLS, "listeners.cluster.tls.client_ca": ""}, "cluster.tls.client_ca"),
        (
            {
                **CLUSTER_TLS,
                "listeners.cluster.tls.client_ca": "",
                "listeners.cluster.tls.client_auth": "none",
            },
            "cluster.tls.peer_ca",
        ),
    ],
)
def test_encryption_that_is_said_by_half_is_refused(given: dict[str, str], named: str) -> None:
    assert named in refusal(flags=given).tried


_NAMES = st.sampled_from(sorted({name for each in settings() for name in each.path.split(".")}))
_VALUES = st.recursive(
    st.booleans() | st.integers(-9, 99_999) | st.sampled_from(["", "a", "a:1", "0.0.0.0:7", "2"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)


@given(tree=st.dictionaries(_NAMES, _VALUES, max_size=4))
def test_whatever_a_file_says_is_right_or_told_in_our_words(tree: dict[str, object]) -> None:
    text = "".join(f"{name} = {toml_value(value)}\n" for name, value in tree.items())
    found, mistakes = examine(file_text=text, file_name="node.toml")
    assert isinstance(found, NodeConfiguration)
    assert all(each.code is ErrorCode.INVALID_CONFIGURATION for each in mistakes)


def test_a_listener_may_say_only_how_it_is_reached() -> None:
    found = load(file_text="[listeners.client]\nadvertised = 'broker.example:9192'\n")
    assert found.listeners.client.bind == "127.0.0.1:9192"
    assert found.listeners.client.advertised == "broker.example:9192"


def test_peer_addresses_are_a_table() -> None:
    found = load(file_text="[peer_addresses]\n2 = '127.0.0.1:7002'\n")
    assert found.peer_addresses == {"2": "127.0.0.1:7002"}


def test_how_far_behind_a_replica_is_copied_apart_can_be_set_with_its_nearness() -> None:
    limits = load(flags={"replication.far_behind_bytes": "8000"}).replication_limits()
    assert (limits.far_behind_bytes, limits.near_end_bytes) == (8_000, 1_000)
    assert load(flags={}).replication_limits() == DEFAULT_REPLICATION_LIMITS


@pytest.mark.parametrize(
    ("setting", "method", "bound"),
    [
        ("fetch.positions_max", "fetch_pb2.FetchService.Fetch", "elements_max"),
        (
            "records.request_records_max",
            "records_pb2.RecordsService.ProduceRecords",
            "elements_max",
        ),
        ("topics.partitions_max", "topic_admin_pb2.TopicAdminService.CreatePartitions", "work_max"),
        ("default_partitions", "admin_pb2.AdminService.CreateTopics", "work_max"),
    ],
)
def test_what_the_contract_would_refuse_whatever_is_configured_cannot_be_configured(
    setting: str, method: str, bound: str
) -> None:
    module, service, call = method.split(".")
    found = importlib.import_module(f"tidelog.v1.{module}").DESCRIPTOR
    options = found.services_by_name[service].methods_by_name[call].GetOptions()
    most = getattr(options.Extensions[options_pb2.bounds], bound)
    with pytest.raises(TidelogError) as caught:
        load(flags={setting: str(most + 1)})
    assert caught.value.code is ErrorCode.INVALID_CONFIGURATION
    assert setting in str(caught.value)
    _, mistakes = examine(flags={setting: str(most + 1)})
    assert mistakes, "`tidelog config check` says it as well"
