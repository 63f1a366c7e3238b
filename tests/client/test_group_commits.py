"""What a consumer with a group commits, and when, on both drivers; how its calls end."""

import pickle
import subprocess
import sys
from typing import Any

import pytest

from tests.client.support.contract_server import ContractServer
from tests.client.support.group_members import (
    PARTITIONS,
    Member,
    T,
    Told,
    clients,
    member,
    produce,
    read,
    refused,
    server,
    until,
)
from tests.support.waiting import HANG_SECONDS, NEVER_MS, ended, with_more_time
from tidelog.client import Consumer, OffsetAndMetadata, TopicPartition
from tidelog.client.errors import CommitFailedError, ErrorCode, TidelogError, WakeupError
from tidelog.client.reading import group_base

__all__ = ["clients", "member", "server"]

pytestmark = pytest.mark.slow


def test_auto_commit_stores_what_an_earlier_poll_delivered(
    member: Member, server: ContractServer
) -> None:
    produce(server, 5)
    consumer = member("t", auto_commit_interval_ms=0, max_poll_records=5)
    until(lambda: len(consumer.assignment()) == PARTITIONS, consumer)
    consumer.seek_to_beginning(*T)
    before = server.groups.committed("g")
    found: dict[TopicPartition, list[Any]] = {}
    while not found:
        found = consumer.poll(100)
    [(name, records)] = found.items()
    assert server.groups.committed("g").get(name.partition, 0) == before.get(name.partition, 0)
    until(lambda: server.groups.committed("g").get(name.partition) == len(records), consumer)


def test_without_auto_commit_only_commit_stores(member: Member, server: ContractServer) -> None:
    produce(server, 5)
    consumer = member("t", enable_auto_commit=False)
    read(consumer, 5 * PARTITIONS)
    consumer.poll(10)
    assert consumer.committed(T[0]) is None
    consumer.commit({T[0]: OffsetAndMetadata(3, "half"), T[1]: 4})
    assert consumer.committed(T[0]) == 3
    assert consumer.committed(T[0], metadata=True).metadata == "half"
    consumer.commit()
    assert server.groups.committed("g") == dict.fromkeys(range(PARTITIONS), 5)
    consumer.close()
    assert read(member("t"), 0) == []


def test_reading_goes_on_where_it_was_committed(member: Member, server: ContractServer) -> None:
    produce(server, 5)
    with member("t", enable_auto_commit=False) as consumer:
        read(consumer, 5 * PARTITIONS)
        consumer.commit(dict.fromkeys(T, 3))
    assert sorted(read(member("t"), 2 * PARTITIONS)) == sorted([3, 4] * PARTITIONS)


def test_iterating_commits_what_was_taken_so_far(member: Member, server: ContractServer) -> None:
    produce(server, 5)
    consumer = member("t", enable_auto_commit=False, max_poll_records=2)
    taken = dict.fromkeys(range(PARTITIONS), 0)
    for _ in range(7):
        record = next(consumer)
        taken[record.partition] = record.offset + 1
    consumer.commit()
    assert server.groups.committed("g") == taken


def test_commits_without_waiting_are_stored_in_order_and_told(
    member: Member, server: ContractServer
) -> None:
    produce(server, 5)
    consumer = member("t", enable_auto_commit=False)
    read(consumer, 5 * PARTITIONS)
    told: list[tuple[int, TidelogError | None]] = []
    for offset in (1, 2, 3):
        consumer.commit_async(
            {T[0]: offset}, lambda offsets, error: told.append((offsets[T[0]].offset, error))
        )
    until(lambda: len(told) == 3, consumer)
    assert told == [(1, None), (2, None), (3, None)]
    assert consumer.committed(T[0]) == 3


def test_a_stale_commit_says_which_partitions_and_why(
    member: Member, server: ContractServer
) -> None:
    produce(server, 5)
    consumer = member("t", enable_auto_commit=False)
    read(consumer, 5 * PARTITIONS)
    [coordinated] = server.groups.of("g").members.values()
    key = next(key for key in coordinated.assigned if key.partition == 2)
    epoch, coordinated.assigned[key] = coordinated.assigned[key], 1_000
    error = refused(consumer.commit)
    coordinated.assigned[key] = epoch
    assert isinstance(error, CommitFailedError)
    assert error.code is ErrorCode.STALE_ASSIGNMENT
    assert error.partitions == (T[2],)
    assert "delivered again" in error.happened
    assert "max_poll_interval_ms" in error.hint
    assert server.groups.committed("g") == {0: 5, 1: 5, 3: 5}


def test_closing_is_bounded_when_nobody_answers(
    member: Member, server: ContractServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_base, "CLOSE_TIMEOUT_MS", NEVER_MS)
    monkeypatch.setattr(group_base, "FAREWELL_S", NEVER_MS / 1000)
    produce(server, 5)
    consumer = member("t")
    read(consumer, 5 * PARTITIONS)
    server.groups.is_away = True
    ended(lambda: consumer.close(True, 300))


def test_leaving_a_with_block_by_an_error_commits_nothing_that_was_in_hand(
    server: ContractServer,
) -> None:
    produce(server, 5)

    def fail_in_block() -> None:
        with Consumer(
            "t", group_id="g", bootstrap_servers=server.address, auto_offset_reset="earliest"
        ) as consumer:
            read(consumer, 5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_block()
    assert server.groups.heartbeats[-1].member_epoch == -1
    assert all(offset == 0 for offset in server.groups.committed("g").values())


def test_a_reader_that_assigns_to_itself_commits_as_no_member(
    member: Member, server: ContractServer
) -> None:
    produce(server, 5)
    with member() as reader:
        reader.assign([T[1]])
        assert read(reader, 5) == list(range(5))
        reader.commit({T[1]: 3})
        assert reader.committed(T[1]) == 3
        reader.seek(T[1], 3)
    again = member(enable_auto_commit=False)
    again.assign([T[1]])
    assert again.position(T[1]) == 3
    assert read(again, 2) == [3, 4]
    assert server.groups.heartbeats == []
    assert {request.member_id for request in server.groups.commits} == {""}


def test_without_an_offset_and_a_reset_policy_the_user_is_asked(
    member: Member, server: ContractServer
) -> None:
    produce(server, 2)
    consumer = member("t", auto_offset_reset="none")
    error = refused(lambda: read(consumer, 1))
    assert error.code is ErrorCode.NO_OFFSET_FOR_PARTITION


def test_a_lookup_that_is_refused_until_its_time_is_over_ends_with_the_refusal(
    member: Member, server: ContractServer
) -> None:
    with member() as reader:
        reader.assign([T[1]])
        server.groups.is_away = True

        def asked(limit_ms: int) -> None:
            error = refused(lambda: reader.committed(T[1], timeout_ms=limit_ms))
            assert error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert "within default_api_timeout_ms" in error.happened

        with_more_time(asked, 200)


def test_without_a_group_nothing_is_committed(member: Member, server: ContractServer) -> None:
    consumer = member("t", group=None)
    for call in (consumer.commit, consumer.group_metadata, lambda: consumer.committed(T[0])):
        error = refused(call)
        assert error.code is ErrorCode.INVALID_ARGUMENT
        assert "group_id" in error.hint
    assert refused(lambda: consumer.subscribe("t", None, Told())).code is ErrorCode.INVALID_ARGUMENT


def test_a_waiting_commit_can_be_woken(server: ContractServer) -> None:
    produce(server, 5)
    with Consumer(
        "t", group_id="g", bootstrap_servers=server.address, auto_offset_reset="earliest"
    ) as consumer:
        read(consumer, 5 * PARTITIONS)
        server.groups.is_away = True
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.commit()
        server.groups.is_away = False


INTERRUPTED = """
import os, signal, sys, threading
from tidelog.client import Consumer
consumer = Consumer("t", group_id="g", bootstrap_servers=sys.argv[1],
                    auto_offset_reset="earliest", retry_backoff_ms=20)
while not consumer.poll(100):
    pass
print("ready", flush=True)
sys.stdin.readline()
def interrupt():
    while repr(consumer._busy).startswith("<unlocked"):  # until it is inside the call
        pass
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    CALL
except KeyboardInterrupt:
    print("interrupted", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    "call",
    [
        "while True: consumer.poll(86_400_000)",
        "consumer.commit(timeout_ms=86_400_000)",
        "consumer.close(timeout_ms=86_400_000)",
    ],
)
def test_ctrl_c_ends_a_call_that_waits(server: ContractServer, call: str) -> None:
    produce(server, 1)
    source = INTERRUPTED.replace("CALL", call)
    with subprocess.Popen(
        [sys.executable, "-c", source, server.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        server.groups.is_away = True
        assert process.communicate("go\n", timeout=HANG_SECONDS)[0] == "interrupted\n"


def test_another_subscription_or_assignment_does_not_wait_for_the_answer_to_an_earlier_one(
    member: Member, server: ContractServer
) -> None:
    produce(server, 5)
    server.groups.is_forgetful = True
    consumer = member("t")
    until(lambda: consumer.assignment(), consumer)
    consumer.subscribe(["t", "u"])
    consumer.poll(50)
    consumer.unsubscribe()
    consumer.assign([T[1]])
    consumer.poll(50)
    server.groups.is_forgetful = False
    assert read(consumer, 5) == list(range(5))
    consumer.subscribe(["t"])
    assert len(read(consumer, 5)) >= 5


LEFT_OPEN = """
import sys
from tidelog.client import Consumer
consumer = Consumer("t", group_id="g", bootstrap_servers=sys.argv[1], auto_offset_reset="earliest")
while not consumer.poll(100):
    pass
"""


def test_an_interpreter_that_ends_without_close_leaves_and_commits_nothing(
    server: ContractServer,
) -> None:
    produce(server, 5)
    subprocess.run(
        [sys.executable, "-c", LEFT_OPEN, server.address], check=True, timeout=HANG_SECONDS
    )
    assert server.groups.heartbeats[-1].member_epoch == -1
    assert all(offset == 0 for offset in server.groups.committed("g").values())


def test_a_failed_commit_survives_pickling() -> None:
    reason = TidelogError(ErrorCode.STALE_ASSIGNMENT, tried="commit", happened="it moved")
    again = pickle.loads(pickle.dumps(CommitFailedError(group="g", failures={T[1]: reason})))
    assert isinstance(again, CommitFailedError)
    assert again.partitions == (T[1],)
    assert "it moved" in str(again)
