"""The commands as processes against a real node: what is printed, stored and returned."""

import itertools
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import (
    ANNOUNCED,
    announced_command,
    assert_three_lines,
    cli_command,
    cli_environment,
    run_cli,
    telling_command,
)
from tests.support.node import NodeProcess, running_node
from tests.support.waiting import HANG_SECONDS, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.live]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One node for the whole file; each test has topics of its own."""
    with running_node(tmp_path_factory.mktemp("node")) as started:
        yield started


def ok(node: NodeProcess, *arguments: str | bytes, stdin: bytes = b"") -> bytes:
    """A command that works and says nothing on stderr."""
    done = run_cli(*arguments, bootstrap=node.bootstrap, stdin=stdin)
    assert (done.code, done.err) == (0, "")
    return done.out


def start(
    node: NodeProcess,
    *arguments: str,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        cli_command(*arguments),
        env=cli_environment(node.bootstrap),
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


def unread(node: NodeProcess, *arguments: str) -> bytes:
    """What a command says on stderr, and its exit code, when its output never had a reader."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            telling_command(*arguments),
            env=cli_environment(node.bootstrap),
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=HANG_SECONDS,
        )
    finally:
        os.close(writing)
    return done.stderr


def test_a_topic_is_created_listed_and_described(node: NodeProcess) -> None:
    text = ok(
        node, "topic", "create", "clerks", "-p", "3", "-r", "1", "--config", "segment.bytes=65536"
    )
    assert text == b"created topic clerks: 3 partitions, replication factor 1\n"
    assert b"clerks" in ok(node, "topic", "list", "-q").splitlines()
    assert re.search(rb"^clerks +3 +1$", ok(node, "topic", "list"), re.MULTILINE)
    lines = ok(node, "topic", "describe", "clerks").decode().splitlines()
    assert re.fullmatch(
        r"Topic: clerks  TopicId: [0-9a-f]{32}  PartitionCount: 3  ReplicationFactor: 1  "
        r"Configs: segment\.bytes=65536",
        lines[0],
    )
    head = ["Partition", "Leader", "Replicas", "Isr", "Start", "End", "Size", "Lag"]
    assert lines[1].split() == head
    assert [line.split() for line in lines[2:]] == [
        [str(partition), "1", "1", "1", "0", "0", "0", "B", "-"] for partition in range(3)
    ]


def test_json_has_the_fields_that_the_help_names(node: NodeProcess) -> None:
    ok(node, "topic", "create", "fields", "-p", "2")
    ok(node, "produce", "fields", "-p", "1", stdin=b"a\nb\n")
    (topic,) = json.loads(ok(node, "topic", "describe", "fields", "--json"))
    assert list(topic) == [
        "name",
        "topic_id",
        "is_internal",
        "partition_count",
        "replication_factor",
        "configs",
        "partitions",
    ]
    assert topic["partitions"][1] == {
        "partition": 1,
        "leader": 1,
        "leader_epoch": topic["partitions"][1]["leader_epoch"],
        "replicas": [1],
        "isr": [1],
        "eligible": [1],
        "ineligible": [],
        "log_start_offset": 0,
        "high_watermark": 2,
        "size_bytes": topic["partitions"][1]["size_bytes"],
        "replica_states": [
            {
                "broker_id": 1,
                "log_end_offset": 2,
                "flushed_offset": 2,
                "lag": 0,
                "caught_up_ago_ms": 0,
                "size_bytes": topic["partitions"][1]["size_bytes"],
                "is_known": True,
                "failure": None,
            }
        ],
    }
    assert topic["partitions"][1]["size_bytes"] > 0
    listed = json.loads(ok(node, "topic", "list", "--json"))
    assert {
        "name": "fields",
        "partition_count": 2,
        "replication_factor": 1,
        "is_internal": False,
    } in listed
    cluster = json.loads(ok(node, "cluster", "describe", "--json"))
    assert list(cluster) == [
        *("cluster_id", "controller_id", "release", "brokers", "partitions"),
        "without_controller_ms",
    ]
    assert cluster["brokers"][0]["size_bytes"] >= topic["partitions"][1]["size_bytes"]
    (broker,) = json.loads(ok(node, "broker", "log-dirs", "--topic", "fields", "--json"))
    (directory,) = broker["directories"]
    assert directory["size_bytes"] == topic["partitions"][1]["size_bytes"]
    assert [each["partition"] for each in directory["replicas"]] == [0, 1]
    assert cluster["brokers"][0]["address"] == node.bootstrap
    text = ok(node, "cluster", "describe").decode()
    assert cluster["cluster_id"] in text
    assert node.bootstrap in text


def test_features_are_shown_and_a_level_that_nobody_speaks_is_refused(node: NodeProcess) -> None:
    shown = json.loads(ok(node, "cluster", "features", "--json"))
    version = next(each for each in shown if each["name"] == "metadata.version")
    assert list(version) == ["name", "finalised_level", "level_min", "level_max"]
    assert version["finalised_level"] >= 1
    level = f"metadata.version={version['finalised_level']}"
    text = ok(node, "cluster", "features", level).decode()
    assert text.startswith("Feature ")
    assert text.endswith("nothing was done; add --execute\n")
    done = run_cli("cluster", "features", "metadata.version=99", bootstrap=node.bootstrap)
    assert done.code == 1
    assert_three_lines(done.err, why="speaks levels", hint="Upgrade")


def test_a_topic_that_exists_is_an_error_unless_that_is_allowed(node: NodeProcess) -> None:
    ok(node, "topic", "create", "twice")
    done = run_cli("topic", "create", "twice", bootstrap=node.bootstrap)
    assert done.code == 1
    assert_three_lines(done.err, why="exists", hint="")
    assert (
        ok(node, "topic", "create", "twice", "--if-not-exists") == b"topic twice exists already\n"
    )


def test_any_bytes_come_back_as_they_went_in(node: NodeProcess) -> None:
    values = [bytes([number]) * 3 for number in range(256) if number != ord("\n")]
    values += [b"", b"\r", b"a" * 70_000, "grüße".encode()]
    ok(node, "topic", "create", "bytes", "-p", "1")
    stdin = b"".join(value + b"\n" for value in values)
    assert ok(node, "produce", "bytes", stdin=stdin) == b""
    assert ok(node, "consume", "bytes", "-o", "beginning", "-e") == stdin


def test_keys_headers_partition_and_codec_are_stored(node: NodeProcess) -> None:
    ok(node, "topic", "create", "keyed", "-p", "4")
    arguments = ("-K", "::", "-H", "till=4", "-H", b"raw=\xff", "-p", "2", "-z", "zstd")
    ok(node, "produce", "keyed", *arguments, stdin=b"k::v\nno key\n::empty\nk::a::b")
    text = ok(node, "consume", "keyed", "-o", "beginning", "-e", "-f", "%p %o [%k %K] %v %h\\n")
    assert text.splitlines() == [
        b"2 0 [k 1] v till=4,raw=\xff",
        b"2 1 [ -1] no key till=4,raw=\xff",
        b"2 2 [ 0] empty till=4,raw=\xff",
        b"2 3 [k 1] a::b till=4,raw=\xff",
    ]
    text = ok(node, "consume", "keyed", "-o", "beginning", "-e", "-K", "%::\\t")
    assert text.splitlines()[0] == b"k%::\tv"


def test_null_and_delimiter_are_what_they_are_asked_to_be(node: NodeProcess) -> None:
    ok(node, "topic", "create", "nulls", "-p", "1")
    ok(node, "produce", "nulls", "-Z", "-K", ",", "-D", "\\0", stdin=b"k,\0,v\n\0")
    text = ok(node, "consume", "nulls", "-o", "beginning", "-e", "-Z", "-f", "%k=%v|")
    assert text == b"k=NULL|NULL=v\n|"


def test_the_last_records_a_count_a_partition_and_a_time_can_be_asked_for(
    node: NodeProcess,
) -> None:
    ok(node, "topic", "create", "places", "-p", "2")
    for partition in "01":
        stdin = b"".join(b"%s-%d\n" % (partition.encode(), number) for number in range(10))
        ok(node, "produce", "places", "-p", partition, stdin=stdin)
    assert sorted(ok(node, "consume", "places", "-e", "-o", "-2").split()) == [
        b"0-8",
        b"0-9",
        b"1-8",
        b"1-9",
    ]
    assert ok(node, "consume", "places", "-e", "-o", "7", "-p", "1").split() == [
        b"1-7",
        b"1-8",
        b"1-9",
    ]
    assert len(ok(node, "consume", "places", "-o", "beginning", "-c", "13").split()) == 13
    assert ok(node, "consume", "places", "-e") == b""
    text = ok(node, "consume", "places", "-e", "-o", "beginning", "-p", "0", "--json")
    record = json.loads(text.splitlines()[4])
    assert record["value"] == "0-4"
    since = ok(node, "consume", "places", "-e", "-o", f"@{record['timestamp']}", "-p", "0")
    assert b"0-4" in since.split()
    assert ok(node, "consume", "places", "-e", "-o", "@2999-01-01T00:00:00Z") == b""


def test_a_consumer_without_a_place_sees_what_comes_from_now_on(node: NodeProcess) -> None:
    ok(node, "topic", "create", "tail", "-p", "1")
    ok(node, "produce", "tail", stdin=b"before\n")
    tail = start(node, "consume", "tail", "-c", "1", stdout=subprocess.PIPE)
    numbers = itertools.count()
    wait_until(
        lambda: tail.poll() is not None,
        turn=lambda: ok(node, "produce", "tail", stdin=b"after %d\n" % next(numbers)),
    )
    out, errors = tail.communicate(timeout=HANG_SECONDS)
    assert tail.returncode == 0
    assert errors == b""
    assert re.fullmatch(rb"after \d+\n", out)


def test_a_line_is_stored_while_the_pipe_stays_open(node: NodeProcess) -> None:
    ok(node, "topic", "create", "open-pipe", "-p", "1")
    producing = start(node, "produce", "open-pipe", stdin=subprocess.PIPE)
    reading = start(
        node, "consume", "open-pipe", "-o", "beginning", "-c", "1", stdout=subprocess.PIPE
    )
    assert producing.stdin is not None
    producing.stdin.write(b"first\n")
    producing.stdin.flush()
    out, _ = reading.communicate(timeout=HANG_SECONDS)
    assert out == b"first\n"
    producing.send_signal(signal.SIGINT)
    _, errors = producing.communicate(timeout=HANG_SECONDS)
    assert producing.returncode == 130
    assert errors == b"interrupted: 1 of 1 lines are stored\n"


@pytest.mark.parametrize("delay_seconds", [0.0, 0.1, 0.3, 1.0, 3.0])
def test_ctrl_c_ends_a_reader_quickly_and_quietly(node: NodeProcess, delay_seconds: float) -> None:
    ok(node, "topic", "create", "interrupted", "--if-not-exists")
    reader = subprocess.Popen(
        announced_command("consume", "interrupted"),
        env=cli_environment(node.bootstrap),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == ANNOUNCED
    with pytest.raises(subprocess.TimeoutExpired):
        reader.wait(delay_seconds)
    os.kill(node.pid, signal.SIGSTOP)
    try:
        # Nobody answers what it might still ask: it asks nothing, and ends.
        reader.send_signal(signal.SIGINT)
        _, errors = reader.communicate(timeout=HANG_SECONDS)
    finally:
        os.kill(node.pid, signal.SIGCONT)
    assert reader.returncode == 130
    assert errors == b""


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell tells the exit code")
def test_a_reader_whose_output_nobody_reads_ends_quietly(node: NodeProcess) -> None:
    ok(node, "topic", "create", "head", "-p", "1")
    # More than a pipe holds: whoever reads one line and goes leaves a writer behind.
    ok(node, "produce", "head", stdin=b"line\n" * 100_000)
    for arguments in (("-o", "beginning"), ("-o", "beginning", "-e")):
        reader = subprocess.Popen(
            telling_command("consume", "head", *arguments),
            env=cli_environment(node.bootstrap),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"line\n"
        reader.stdout.close()
        assert reader.stderr is not None
        with reader.stderr:
            told = reader.stderr.read()
        reader.wait(HANG_SECONDS)
        assert (arguments, told) == (arguments, b"141\n")


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell tells the exit code")
def test_a_reader_of_a_silent_topic_whose_output_nobody_reads_ends_quietly(
    node: NodeProcess,
) -> None:
    ok(node, "topic", "create", "silent", "-p", "1")
    assert unread(node, "consume", "silent") == b"141\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_three_lines(node: NodeProcess) -> None:
    ok(node, "topic", "create", "full", "-p", "1")
    ok(node, "produce", "full", stdin=b"line\n")
    with Path("/dev/full").open("wb") as full:
        done = start(node, "consume", "full", "-o", "beginning", "-e", stdout=full.fileno())
        _, errors = done.communicate(timeout=HANG_SECONDS)
    assert done.returncode == 1
    assert_three_lines(errors.decode(), why="No space left", hint="room")


def test_a_line_that_is_too_large_is_named_and_those_before_it_are_stored(
    node: NodeProcess,
) -> None:
    ok(node, "topic", "create", "large", "-p", "1")
    stdin = b"one\ntwo\n" + b"x" * 2_000_000 + b"\nfour\n"
    done = run_cli("produce", "large", bootstrap=node.bootstrap, stdin=stdin)
    assert done.code == 1
    assert_three_lines(done.err, why="the 2 before it are stored", hint="max_request_size")
    assert "line 3 is not stored" in done.err
    assert ok(node, "consume", "large", "-o", "beginning", "-e") == b"one\ntwo\n"


@pytest.mark.parametrize(
    ("arguments", "code", "why", "hint"),
    [
        (("consume", "clerkz"), 2, "there is no topic `clerkz`", "`clerks`"),
        (("topic", "describe", "clerkz"), 2, "there is no topic `clerkz`", "clerks"),
        (("consume", "bad name"), 2, "'bad name'", "1–249 of the characters"),
        (("produce", "bad name"), 2, "'bad name'", "1–249 of the characters"),
        (("topic", "create", "bad/name"), 2, "'bad/name'", "1–249 of the characters"),
        (("topic", "create", "t" * 250), 2, "'tttt", "1–249 of the characters"),
        (("topic", "create", "factor", "-r", "3"), 2, "1 of 1 registered brokers", "brokers"),
        (("topic", "create", "many", "-p", "10001"), 2, "1 to 10000", ""),
        (("topic", "create", "c", "--config", "segment.byte=1"), 2, "setting", "segment.bytes"),
        (("topic", "create", "c", "--config", "segment.bytes=1"), 2, "`1` is not", ""),
        (("consume", "clerks", "-p", "3"), 2, "clerks has 3 partitions", "0 to 2"),
        (("produce", "clerks", "-p", "3"), 2, "clerks has 3 partitions", "0 to 2"),
        (("consume", "clerks", "-o", "1"), 2, "clerks-0 begins at 0", "-p"),
        (("topic", "list", "-b", "127.0.0.1:1"), 1, "connection refused", "tidelog dev"),
        (("produce", "clerks", "-b", "127.0.0.1:1"), 1, "connection refused", "-b HOST:PORT"),
        (("consume", "clerks", "-b", "127.0.0.1:1"), 1, "connection refused", "tidelog dev"),
        (("topic", "list", "-b", "no.such.host.invalid"), 1, "cannot be resolved", "-b HOST"),
    ],
    ids=str,
)
def test_what_the_cluster_refuses_is_told_in_three_lines(
    node: NodeProcess, arguments: tuple[str, ...], code: int, why: str, hint: str
) -> None:
    ok(node, "topic", "create", "clerks", "-p", "3", "--if-not-exists")
    done = run_cli(*arguments, bootstrap=node.bootstrap, stdin=b"line\n")
    assert done.out == b""
    assert_three_lines(done.err, why=why, hint=hint)
    assert done.code == code


def test_a_line_without_an_answer_is_counted_as_such(tmp_path: Path) -> None:
    with running_node(tmp_path) as mortal:
        ok(mortal, "topic", "create", "mortal", "-p", "1")
        producing = start(
            mortal,
            *("produce", "mortal", "-X", "delivery_timeout_ms=4000"),
            *("-X", "request_timeout_ms=2000"),
            stdin=subprocess.PIPE,
        )
        assert producing.stdin is not None
        producing.stdin.write(b"stored\n" * 1000)
        producing.stdin.flush()
        reader = start(
            mortal, *("consume", "mortal", "-o", "beginning", "-c", "1000"), stdout=subprocess.PIPE
        )
        out, _ = reader.communicate(timeout=HANG_SECONDS)
        assert out == b"stored\n" * 1000
        mortal.kill()
        producing.stdin.write(b"lost\n" * 10)
        _, errors = producing.communicate(timeout=HANG_SECONDS)
        assert producing.returncode == 1
        assert_three_lines(errors.decode(), why="line 1001: ", hint="")
        assert "1000 of 1010 lines are stored" in errors.decode()


def test_a_reader_goes_on_when_its_node_comes_back(tmp_path: Path) -> None:
    with running_node(tmp_path) as mortal:
        ok(mortal, "topic", "create", "returning", "-p", "1")
        ok(mortal, "produce", "returning", stdin=b"one\n")
        reader = start(
            mortal, *("consume", "returning", "-o", "beginning", "-c", "2"), stdout=subprocess.PIPE
        )
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"one\n"
        mortal.restart()
        ok(mortal, "produce", "returning", stdin=b"two\n")
        out, errors = reader.communicate(timeout=HANG_SECONDS)
        assert (reader.returncode, out, errors) == (0, b"two\n", b"")


def test_a_second_node_in_the_same_place_is_three_lines(node: NodeProcess) -> None:
    done = run_cli("dev", "--port", "0", "--data-dir", str(node.data_dir))
    assert done.code == 1
    assert_three_lines(done.err, why="", hint="--data-dir")
    port = node.bootstrap.rpartition(":")[2]
    done = run_cli("dev", "--port", port)
    assert done.code == 1
    assert_three_lines(done.err, why=port, hint="")


@pytest.mark.skipif(os.name != "posix", reason="descriptors are closed as POSIX shells do")
def test_closed_streams_are_told(node: NodeProcess) -> None:
    for arguments, closed in (("produce x", "<&-"), ("consume x", ">&-")):
        line = " ".join(map(str, [*cli_command(*arguments.split()), closed]))
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            env=cli_environment(node.bootstrap),
            stderr=subprocess.PIPE,
            timeout=HANG_SECONDS,
        )
        assert done.returncode == 2
        assert_three_lines(done.stderr.decode(), why="is closed", hint="")


@pytest.mark.skipif(os.name != "posix", reason="descriptors are closed as POSIX shells do")
def test_an_error_never_goes_to_stdout(node: NodeProcess) -> None:
    line = " ".join(map(str, [*cli_command("topic", "describe", "nowhere"), "2>&-"]))
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        env=cli_environment(node.bootstrap),
        stdout=subprocess.PIPE,
        timeout=HANG_SECONDS,
    )
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell tells the exit code")
def test_a_list_whose_reader_went_away_ends_quietly(node: NodeProcess) -> None:
    for arguments in (("topic", "list"), ("--help",)):
        assert (arguments, unread(node, *arguments)) == (arguments, b"141\n")
