"""Clock, Random and Host keep their promises in every world."""

from tests.ports.support.adapters import World

DRAWS = 2_000
READINGS = 200


def test_monotonic_ns_never_falls(world: World) -> None:
    async def read() -> list[int]:
        clock = world.clock()
        readings = []
        for _ in range(READINGS):
            readings.append(clock.monotonic_ns())
            await clock.sleep(0)
        return readings

    readings = world.run(read())
    assert readings == sorted(readings)


def test_sleep_ends_no_sooner_than_asked(world: World) -> None:
    async def sleep() -> list[int]:
        clock = world.clock()
        left = []
        for duration_ms in (0, 1, 2, 7):
            start_ns = clock.monotonic_ns()
            await clock.sleep(duration_ms)
            left.append(clock.monotonic_ns() - start_ns - duration_ms * 1_000_000)
        return left

    assert min(world.run(sleep())) >= 0


def test_wall_ms_counts_milliseconds_since_1970(world: World) -> None:
    async def read() -> int:
        return world.clock().wall_ms()

    year_2020_ms, year_2100_ms = 1_577_836_800_000, 4_102_444_800_000
    assert year_2020_ms < world.run(read()) < year_2100_ms


def test_below_draws_every_number_under_its_bound_and_no_other(world: World) -> None:
    async def draw() -> set[int]:
        random = world.random()
        return {random.below(7) for _ in range(DRAWS)}

    assert world.run(draw()) == set(range(7))


def test_below_one_is_always_zero(world: World) -> None:
    async def draw() -> set[int]:
        random = world.random()
        return {random.below(1) for _ in range(10)}

    assert world.run(draw()) == {0}


def test_uuids_have_sixteen_bytes_and_differ(world: World) -> None:
    async def draw() -> list[bytes]:
        random = world.random()
        return [random.uuid() for _ in range(DRAWS)]

    drawn = world.run(draw())
    assert {len(uuid) for uuid in drawn} == {16}
    assert len(set(drawn)) == DRAWS


def test_the_boot_id_and_host_name_stay_and_say_something(world: World) -> None:
    async def read() -> list[tuple[str, str]]:
        host = world.host()
        return [(host.boot_id(), host.host_name()) for _ in range(2)]

    first, second = world.run(read())
    assert first == second
    assert all(first)
