"""Readers whose records a broker decodes take turns: all else runs in between."""

import asyncio

import pytest

from tidelog.broker.services.records.decode_turns import WAITING_MAX, DecodeTurns
from tidelog.wire.errors import ErrorCode, TidelogError


def test_a_reader_alone_does_not_wait() -> None:
    async def main() -> None:
        reader = DecodeTurns().run(lambda: 7, tried="read")
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
        readers = [turns.run(lambda: decoded_in.append(turn), tried="read") for _ in range(10)]
        await asyncio.gather(count(), *readers)

    asyncio.run(main())
    assert len(set(decoded_in)) == 10


def test_too_many_readers_are_refused_and_may_try_again() -> None:
    async def main() -> None:
        turns, decoded = DecodeTurns(), []
        calls = [turns.run(lambda: decoded.append(1), tried="read") for _ in range(WAITING_MAX + 5)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        refused = [each for each in found if isinstance(each, TidelogError)]
        # The first one has its turn at once.
        assert (len(decoded), len(refused)) == (WAITING_MAX + 1, 4)
        assert {each.code for each in refused} == {ErrorCode.RESOURCE_EXHAUSTED}
        assert all(each.retriable for each in refused)
        await turns.run(lambda: decoded.append(1), tried="read")

    asyncio.run(main())
