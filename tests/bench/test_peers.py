"""What peers print, and what they are asked: parsing, configuration, addresses, pairs."""

from pathlib import Path

import pytest

from bench.chain import IN_FLIGHT_BYTES, window_messages
from bench.clients import keys, payload
from bench.lines import FLUSHED, PEERS_OF, chain_lines, kafka_lines, tidelog_lines, topic
from bench.peers.kafka.node import cluster_id, properties
from bench.peers.kafka.tools import parse_consumed, parse_produced
from bench.peers.tidelog_node import address_in
from bench.settings import Load
from bench.turns import in_turn

PRODUCED = [
    "1048576 records sent, 209715.2 records/sec (20.00 MB/sec), 12.0 ms avg latency, 90.0 ms max.",
    (
        "3000000 records sent, 600000.000000 records/sec (57.22 MB/sec), 9.00 ms avg latency, "
        "80.00 ms max latency, 5 ms 50th, 20 ms 95th, 40 ms 99th, 70 ms 99.9th."
    ),
]
CONSUMED = [
    (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
        "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    ),
    (
        "2000-01-01 00:00:00:000, 2000-01-01 00:00:02:000, 95.3674, 47.68, 1000000, 500000.0, "
        "1500, 500, 190.73, 2000000.0"
    ),
]


def test_the_producer_tools_summary_is_read_and_its_windows_are_not() -> None:
    moved = parse_produced(PRODUCED, 100)
    assert moved.records == 3_000_000
    assert moved.records_per_second == pytest.approx(600_000)
    assert moved.megabytes_per_second == pytest.approx(60.0)


def test_the_consumer_tools_figures_are_found_by_their_names() -> None:
    lines = ["a warning, with commas", CONSUMED[0], "WARNING: slow, very", CONSUMED[1]]
    with_join = parse_consumed(lines, 100, is_join_counted=True)
    without_join = parse_consumed(lines, 100, is_join_counted=False)
    assert with_join.records_per_second == pytest.approx(500_000)
    assert without_join.records_per_second == pytest.approx(2_000_000)


@pytest.mark.parametrize("lines", [[], ["nothing to see"], CONSUMED[:1]])
def test_a_tool_that_printed_no_figures_is_an_error_and_not_a_zero(lines: list[str]) -> None:
    with pytest.raises(ValueError, match="printed no summary"):
        parse_produced(lines, 100)
    with pytest.raises(ValueError, match="printed no figures"):
        parse_consumed(lines, 100, is_join_counted=True)


def test_a_cluster_id_reads_as_a_uuid_and_never_as_an_option() -> None:
    ids = [cluster_id() for _ in range(200)]
    assert all(len(one) == 22 and not one.startswith("-") for one in ids)
    assert len(set(ids)) == 200


def test_the_peer_listens_on_loopback_only() -> None:
    text = properties(1111, 2222, Path("data"))
    assert "listeners=PLAINTEXT://127.0.0.1:1111,CONTROLLER://127.0.0.1:2222\n" in text
    assert "controller.quorum.voters=1@127.0.0.1:2222\n" in text
    assert "0.0.0.0" not in text


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ("Tidelog listens on 127.0.0.1:40123", "127.0.0.1:40123"),
        ("bootstrap: localhost:9192 (press Ctrl-C)", "127.0.0.1:9192"),
        ("data lies in /somewhere/else:12", None),
    ],
)
def test_the_bootstrap_address_is_found_in_what_a_node_prints(
    line: str, address: str | None
) -> None:
    assert address_in(line) == address


def test_a_window_holds_four_mebibytes_and_never_fewer_than_two_messages() -> None:
    assert window_messages(256 * 1024) * 256 * 1024 == IN_FLIGHT_BYTES
    assert window_messages(64 * 1024 * 1024) == 2


def test_keys_are_as_wide_and_as_many_as_asked() -> None:
    asked = list(keys(Load(bootstrap="", topic="t", records=25_000, key_bytes=16)))
    assert len(asked) == 25_000
    assert {len(key) for key in asked if key is not None} == {16}
    assert list(keys(Load(bootstrap="", topic="t", records=3))) == [None, None, None]


def test_a_payload_has_its_length_and_is_the_same_in_each_run() -> None:
    assert len(payload(100)) == 100
    assert payload(100) == payload(100)


def test_every_pair_compares_lines_that_exist_in_one_direction_at_equal_durability() -> None:
    lines = [*tidelog_lines("", 1), *kafka_lines("", 1), *chain_lines()]
    by_key = {line.key: line for line in lines}
    assert len(by_key) == len(lines)
    for ours, peers in PEERS_OF.items():
        for theirs in peers:
            assert by_key[ours].direction == by_key[theirs].direction
            assert by_key[ours].acks == by_key[theirs].acks
            is_flushed = by_key[theirs].flush not in ("none", "-")
            assert is_flushed == (by_key[ours].flush == "before the answer"), (ours, theirs)


def test_a_flushed_kafka_line_fills_a_topic_that_is_flushed() -> None:
    for line in kafka_lines("", 1):
        if line.flush != "-":
            assert (line.creates == FLUSHED) == (line.flush == "flush.messages=1"), line.key


def test_lines_take_turns_both_ways_and_nothing_is_read_before_it_is_produced() -> None:
    lines = [*tidelog_lines("", 1), *kafka_lines("", 1), *chain_lines()]
    forward, backward = in_turn(lines, 0), in_turn(lines, 1)
    assert forward != backward
    for order in (forward, backward):
        directions = [line.direction for line in order]
        assert sorted(directions, reverse=True) == directions
        assert {line.key for line in order} == {line.key for line in lines}


def test_each_repetition_fills_a_topic_of_its_own() -> None:
    assert len({topic(key, number) for key in ("a", "a-1") for number in range(3)}) == 6
