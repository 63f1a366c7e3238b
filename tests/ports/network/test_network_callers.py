"""What a connection has sent beside what came out of it: unfinished messages are known by size."""

import sys
import threading

from tidelog.ports import ListenerLimits
from tidelog.ports.real.network.callers import START_OVERHEAD_BYTES, UNFINISHED_BYTES_MIN, Callers

MIB = 1024 * 1024
NS_PER_S = 1_000_000_000


def callers(**limits: int) -> Callers:
    """Of a listener with the limits."""
    return Callers(ListenerLimits(**limits))


def test_whole_messages_with_their_envelopes_are_nothing_unfinished() -> None:
    found = callers(message_ms_max=1_000)
    received = 5_000
    found.begin("a", 0)
    for number in range(1_000):
        found.delivered("a", 16_000, number)
        # Frames of HTTP/2 and records of TLS around each.
        received += 16_000 + 9 + 5 + 29
        found.look("a", received, number)
    assert found.unfinished_bytes == 0
    assert found.stalled(10 * NS_PER_S) == []


def test_a_message_that_was_begun_and_is_not_finished_names_its_connection_in_time() -> None:
    found = callers(message_ms_max=1_000)
    found.begin("a", 0)
    found.begin("b", 0)
    found.look("a", 10 * MIB, 1)
    found.look("b", START_OVERHEAD_BYTES, 1)
    assert found.stalled(NS_PER_S - 1) == []
    assert [(each.connection, each.limit) for each in found.stalled(NS_PER_S)] == [
        ("a", "message_ms_max")
    ]
    found.delivered("a", 10 * MIB, NS_PER_S)
    found.look("a", 10 * MIB, NS_PER_S)
    assert found.stalled(9 * NS_PER_S) == []


def test_unfinished_messages_of_all_together_cost_the_largest_their_connections() -> None:
    found = callers(request_memory_bytes=16 * MIB)
    for number, size_bytes in enumerate((4 * MIB, 9 * MIB, 8 * MIB, UNFINISHED_BYTES_MIN // 2)):
        found.begin(str(number), 0)
        found.look(str(number), size_bytes, 1)
    assert [(each.connection, each.limit) for each in found.stalled(2)] == [
        ("1", "request_memory_bytes")
    ]


def test_a_connection_without_calls_is_counted_anew() -> None:
    found = callers(message_ms_max=1_000)
    found.begin("a", 0)
    found.look("a", 3 * MIB, 0)
    found.end("a")
    found.look("a", 5 * MIB, 0)
    assert (found.unfinished_bytes, found.stalled(9 * NS_PER_S)) == (0, [])
    found.begin("a", 9 * NS_PER_S)
    found.look("a", 5 * MIB + 10_000, 9 * NS_PER_S)
    assert found.unfinished_bytes < UNFINISHED_BYTES_MIN
    found.look("a", 6 * MIB, 9 * NS_PER_S)
    assert found.unfinished_bytes > UNFINISHED_BYTES_MIN


def test_connections_that_are_gone_are_forgotten_once_their_calls_are_over() -> None:
    found = callers()
    found.begin("a", 0)
    found.begin("b", 0)
    found.keep(["b"], 1)
    assert len(found) == 2
    found.end("a")
    found.keep(["b"], 1)
    assert len(found) == 1
    found.end("a")
    found.delivered("a", 1, 0)
    assert len(found) == 1


def test_headers_without_end_count_though_no_call_has_begun() -> None:
    found = callers(message_ms_max=1_000, request_memory_bytes=16 * MIB)
    found.look("never called", 2 * MIB, 0)
    assert found.unfinished_bytes == 2 * MIB - START_OVERHEAD_BYTES
    assert [each.limit for each in found.stalled(NS_PER_S)] == ["message_ms_max"]
    found.look("never called", 20 * MIB, 1)
    assert [each.limit for each in found.stalled(2)] == ["request_memory_bytes"]
    found.begin("called", 0)
    found.end("called")
    found.look("called", 3 * MIB, 0)
    found.look("called", 3 * MIB + START_OVERHEAD_BYTES, NS_PER_S)
    found.keep(["called"], 1)
    assert found.unfinished_bytes == 0
    found.look("called", 6 * MIB, NS_PER_S)
    assert found.unfinished_bytes > 2 * MIB
    found.begin("called", NS_PER_S)
    found.end("called")
    assert found.unfinished_bytes == 0, "what comes before a call that began was whole"


def test_a_connection_that_is_only_kept_alive_is_never_hung_up_on() -> None:
    found = callers(message_ms_max=1_000)
    for second in range(10_000):
        # A ping of 17 bytes every five seconds, and its answer.
        found.look("idle", 500 + 7 * second, second * NS_PER_S)
        assert found.stalled(second * NS_PER_S) == []


def test_of_a_connection_that_is_gone_nothing_is_held_though_its_calls_are_not_over_yet() -> None:
    found = callers(request_memory_bytes=16 * MIB)
    for name, size_bytes in (("gone", 15 * MIB), ("late", 14 * MIB), ("healthy", 2 * MIB)):
        found.begin(name, 5 if name == "late" else 0)
        found.look(name, size_bytes, 6)
    found.keep(["healthy"], 5)
    assert [each.connection for each in found.stalled(7)] == []
    # Who came after the look began may only have been missed by it.
    assert found.unfinished_bytes > 15 * MIB


def test_time_is_judged_only_where_it_is_asked_for_and_size_always() -> None:
    found = callers(message_ms_max=1_000, request_memory_bytes=16 * MIB)
    for name, size_bytes in (("a", 12 * MIB), ("b", 11 * MIB)):
        found.begin(name, 0)
        found.look(name, size_bytes, 1)
    late = found.stalled(NS_PER_S, is_timed=False)
    assert [(each.connection, each.limit) for each in late] == [("a", "request_memory_bytes")]
    assert [each.limit for each in found.stalled(NS_PER_S)] == ["message_ms_max"] * 2


def test_the_loop_counts_while_another_thread_looks() -> None:
    found = callers()
    for number in range(500):
        found.begin(str(number), 0)
    begun = threading.Event()
    stop = threading.Event()
    raised: list[RuntimeError] = []

    def look() -> None:
        while not stop.is_set():
            begun.set()
            try:
                found.stalled(1)
                found.keep([], 0)
                found.look("0", 0, 1)
            except RuntimeError as error:
                raised.append(error)

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    looking = threading.Thread(target=look)
    looking.start()
    try:
        begun.wait()
        for number in range(5_000):
            connection = str(number)
            found.begin(connection, 0)
            found.delivered(connection, 1_000, 1)
            found.end(connection)
    finally:
        stop.set()
        looking.join()
        sys.setswitchinterval(interval_s)
    assert (raised, len(found)) == ([], 5_000)
