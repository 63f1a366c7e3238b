"""A node's life ends whole: what it holds is let go of also where a kill comes in the middle."""

import asyncio

import pytest

from tidelog.testing.node import let_go, to_the_end


def test_what_is_let_go_of_is_let_go_of_before_a_cancellation_is_told() -> None:
    async def main() -> None:
        steps: list[str] = []
        go_on = asyncio.Event()

        async def let_go() -> None:
            steps.append("begun")
            await go_on.wait()
            steps.append("ended")

        life = asyncio.create_task(to_the_end(let_go()))
        await asyncio.sleep(0)
        for _ in range(2):
            life.cancel()
            await asyncio.sleep(0)
        assert not life.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await life
        assert steps == ["begun", "ended"]

    asyncio.run(main())


def test_what_goes_wrong_at_the_end_is_told() -> None:
    async def fail() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        asyncio.run(to_the_end(fail()))


@pytest.mark.parametrize("failure", [OSError("no"), asyncio.CancelledError()])
def test_what_comes_behind_something_that_fails_is_let_go_of_as_well(
    failure: BaseException,
) -> None:
    steps: list[str] = []

    async def network() -> None:
        steps.append("network")
        raise failure

    async def disk() -> None:
        steps.append("disk")

    async def main() -> None:
        with pytest.raises(type(failure)):
            await to_the_end(let_go(network, disk))

    asyncio.run(main())
    assert steps == ["network", "disk"]
