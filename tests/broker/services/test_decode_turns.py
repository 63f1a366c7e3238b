"""Readers whose records a broker decodes take turns: all else runs in between."""

import asyncio

import pytest

from tidelog.broker.services.records.decode_turns import (
    WAITING_MAX,
    WAITING_OF_CALLER_MAX,
    DecodeTurns,
)
from tidelog.wire.errors import ErrorCode, TidelogError


def test_a_reader_alone_does_not_wait() -> None:
    async def main() -> None:
        reader = DecodeTurns().run(lambda: 7, caller="a", tried="read")
        with pytest.raises(StopIteration) as ended:
            reader.send(None)
        assert ended.value.value == 7

    asyncio.run(main())


def test_readers_at_once_are_decoded_in_turns_of_the_loop_of_their_own() -> None:
    turn = 0
    decoded_in: list[int] = []

    async def count() -> None:
        nonlocal turn
        while len(decoded_in) < 10:
            turn += 1
            await asyncio.sleep(0)

    async def main() -> None:
        turns = DecodeTurns()
        readers = [
            turns.run(lambda: decoded_in.append(turn), caller="a", tried="read") for _ in range(10)
        ]
        await asyncio.gather(count(), *readers)

    asyncio.run(main())
    assert len(set(decoded_in)) == 10


def test_too_many_readers_of_a_caller_are_refused_and_may_try_again() -> None:
    async def main() -> None:
        turns, decoded = DecodeTurns(), []
        calls = [
            turns.run(lambda: decoded.append(1), caller="a", tried="read")
            for _ in range(WAITING_OF_CALLER_MAX + 5)
        ]
        found = await asyncio.gather(*calls, return_exceptions=True)
        refused = [each for each in found if isinstance(each, TidelogError)]
        # The first one has its turn at once.
        assert (len(decoded), len(refused)) == (WAITING_OF_CALLER_MAX + 1, 4)
        assert {each.code for each in refused} == {ErrorCode.RESOURCE_EXHAUSTED}
        assert all(each.retriable for each in refused)
        await turns.run(lambda: decoded.append(1), caller="a", tried="read")

    asyncio.run(main())


class Readers:
    """Decoding that takes the time that a test says, and in which order it was done."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.turns = DecodeTurns(lambda: self.now_s)
        self.order: list[str] = []

    async def read(self, caller: str, took_s: float) -> None:
        def decode() -> None:
            self.order.append(caller)
            self.now_s += took_s

        await self.turns.run(decode, caller=caller, tried="read")


DEAR_S = 0.002


def test_a_reader_of_little_waits_for_one_turn_whoever_else_waits() -> None:
    async def main() -> None:
        readers = Readers()
        dear = [f"dear {number % 10}" for number in range(100)]
        for caller in dear[:10]:
            await readers.read(caller, DEAR_S)
        waiting = [asyncio.ensure_future(readers.read(caller, DEAR_S)) for caller in dear]
        await asyncio.sleep(0)
        readers.order.clear()
        await readers.read("cheap", 0.0)
        assert len(readers.order) <= 2, readers.order
        for _ in range(5):
            before = len(readers.order)
            await readers.read("cheap", 0.0)
            assert len(readers.order) - before <= 2
        await asyncio.gather(*waiting)

    asyncio.run(main())


def test_readers_that_had_as_much_have_turns_one_after_the_other() -> None:
    async def main() -> None:
        readers = Readers()
        work = [readers.read(caller, DEAR_S) for caller in "aaaaaaaabb"]
        await asyncio.gather(*work)
        assert "".join(readers.order) == "abab" + "a" * 6

    asyncio.run(main())


def test_where_all_together_are_too_many_the_one_that_had_most_gives_way() -> None:
    async def main() -> None:
        readers = Readers()
        for number in range(WAITING_MAX // WAITING_OF_CALLER_MAX):
            await readers.read(f"dear {number}", DEAR_S)
        # The last one's turn lasts as long again.
        waiting = [
            asyncio.ensure_future(
                readers.read(f"dear {number % (WAITING_MAX // WAITING_OF_CALLER_MAX)}", DEAR_S)
            )
            for number in range(WAITING_MAX)
        ]
        await asyncio.sleep(0)
        await readers.read("cheap", 0.0)
        found = await asyncio.gather(*waiting, return_exceptions=True)
        refused = [each for each in found if isinstance(each, TidelogError)]
        assert len(refused) == 1
        assert refused[0].code is ErrorCode.RESOURCE_EXHAUSTED

    asyncio.run(main())


def test_readers_that_are_gone_keep_nobody_from_a_turn_and_are_forgotten() -> None:
    async def main() -> None:
        readers = Readers()
        first = asyncio.ensure_future(readers.read("a", DEAR_S))
        await asyncio.sleep(0)
        gone = [asyncio.ensure_future(readers.read(caller, DEAR_S)) for caller in "bcd"]
        await asyncio.sleep(0)
        for each in gone:
            each.cancel()
        await asyncio.gather(first, *gone, return_exceptions=True)
        await readers.read("e", 0.0)
        assert readers.order == ["a", "e"]
        readers.now_s += 1_000
        await readers.read("f", 0.0)
        assert readers.turns._waiting == 0
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not readers.turns._callers

    asyncio.run(main())
