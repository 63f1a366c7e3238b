"""For each fault kind a small scene, and what an observer in it can see only if the fault happened.

A scene is played with the kind enabled and without; it must never look at the simulator's own
counters, because those would also count a fault that nobody feels.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tidelog.chaos.sim import FaultKind, Process, SimulatedPorts, World
from tidelog.chaos.sim.world.nemesis import Nemesis
from tidelog.ports import (
    Append,
    DeathHint,
    Listener,
    PeerUnreachable,
    RequestContext,
    UnaryMethod,
)
from tidelog.wire.errors import ErrorCode, TidelogError

ADDRESS: Final = "node:9000"
ECHO: Final = "/toy.v1.ToyService/Echo"
SLOW: Final = "/toy.v1.ToyService/Slow"
COUNT: Final = "/toy.v1.ToyService/Count"

Observe = Callable[[World], Awaitable[bool]]


class Toy:
    """A service that echoes, waits, and counts."""

    def __init__(self) -> None:
        self.counted = 0

    async def live(self, ports: SimulatedPorts) -> None:
        """The whole life of its process."""

        async def echo(_: RequestContext, message: bytes) -> bytes:
            await ports.clock.sleep(1)
            return message

        async def slow(_: RequestContext, message: bytes) -> bytes:
            await ports.clock.sleep(300)
            return message

        async def count(_: RequestContext, message: bytes) -> bytes:
            await ports.clock.sleep(1_000)
            self.counted += 1
            return message

        methods = {ECHO: UnaryMethod(echo), SLOW: UnaryMethod(slow), COUNT: UnaryMethod(count)}
        await ports.network.serve(Listener(name="client", bind=ADDRESS), methods)
        await wait_forever(ports)


async def wait_forever(ports: SimulatedPorts) -> None:
    """A process without a task."""
    del ports
    await asyncio.Event().wait()


def node(world: World) -> Process:
    """A running toy."""
    return world.machine("node").start("node", Toy().live)


def client(world: World) -> Process:
    """A process to call from."""
    return world.machine("client").start("client", wait_forever)


def nemesis(world: World, *peers: Process) -> Nemesis:
    """Troubles the node."""
    return Nemesis(world, lambda: list(peers))


async def outcome(ports: SimulatedPorts, method: str = ECHO, timeout_ms: int = 2_000) -> str:
    """How a call ends."""
    try:
        await ports.network.call(ADDRESS, method, b"x", timeout_ms=timeout_ms)
    except PeerUnreachable as error:
        return error.death_hint.value
    except TidelogError as error:
        return error.code.name
    return "answered"


async def act_if_active(world: World, kind: FaultKind, victim: Process, *peers: Process) -> None:
    """What a suite's plan does: start the kind, if the run has it."""
    if world.faults.is_active(kind):
        await nemesis(world, *peers).act(kind, victim)


# -- processes and machines ------------------------------------------------------------------------


async def process_crash(world: World) -> bool:
    """Nothing listens where the process was, and its lock is free, with what it wrote."""
    victim, ports = node(world), client(world).ports
    await asyncio.sleep(0.1)
    await act_if_active(world, FaultKind.PROCESS_CRASH, victim)
    return await outcome(ports) == DeathHint.REFUSED.value


async def machine_crash(world: World) -> bool:
    """The boot id changes."""
    victim = node(world)
    before = victim.ports.host.boot_id()
    await act_if_active(world, FaultKind.MACHINE_CRASH, victim)
    return victim.machine.boot_id != before


async def pause(world: World) -> bool:
    """A sleep of the paused process takes longer than it asked for."""
    woken_ns: list[int] = []

    async def life(ports: SimulatedPorts) -> None:
        before_ns = ports.clock.monotonic_ns()
        await ports.clock.sleep(10)
        woken_ns.append(ports.clock.monotonic_ns() - before_ns)
        await wait_forever(ports)

    victim = world.machine("node").start("node", life)
    await asyncio.sleep(0.001)
    await act_if_active(world, FaultKind.PAUSE, victim)
    await asyncio.sleep(1)
    return woken_ns[0] > 30_000_000


async def wall_jump(world: World) -> bool:
    """The wall and the ticks part."""
    victim = node(world)
    clock = victim.ports.clock
    before = clock.wall_ms() - clock.monotonic_ns() // 1_000_000
    await act_if_active(world, FaultKind.WALL_JUMP, victim)
    return abs(clock.wall_ms() - clock.monotonic_ns() // 1_000_000 - before) > 1


async def wrong_start_clock(world: World) -> bool:
    """A process that starts sees another day than the one before it."""
    victim = node(world)
    machine = victim.machine
    before = victim.ports.clock.wall_ms()
    await act_if_active(world, FaultKind.WRONG_START_CLOCK, victim)
    victim.kill()
    again = machine.start("node", wait_forever)
    return abs(again.ports.clock.wall_ms() - before) > 3_600_000


async def clock_rate(world: World) -> bool:
    """A second of the loop is no second of the machine."""
    victim = node(world)
    clock = victim.ports.clock
    await act_if_active(world, FaultKind.CLOCK_RATE, victim)
    before_ns = clock.monotonic_ns()
    await asyncio.sleep(1)
    return abs(clock.monotonic_ns() - before_ns - 1_000_000_000) > 100_000_000


async def listed_again(process: Process) -> list[str]:
    """What the next process finds."""
    names: list[str] = []

    async def look(ports: SimulatedPorts) -> None:
        names.extend(await ports.open_disk().list())

    process.machine.start("again", look)
    await asyncio.sleep(1)
    return names


async def wipe(world: World) -> bool:
    """What was flushed is not there any more."""
    process = await flushed_file(world)
    await act_if_active(world, FaultKind.WIPE, process)
    if not process.is_dead:
        process.kill()
    names = await listed_again(process)
    return "log" not in names


async def rollback(world: World) -> bool:
    """What was flushed after a copy was made is not there any more; what lay there then is."""
    process = await flushed_file(world)
    troubles, is_active = nemesis(world), world.faults.is_active(FaultKind.ROLLBACK)

    async def write(ports: SimulatedPorts) -> None:
        disk = ports.open_disk()
        file = await disk.open("later", create=True)
        await disk.append([Append(file, [b"b"])])
        await disk.flush([file], directories=[""])
        await disk.shutdown()

    if is_active:
        await troubles.act(FaultKind.ROLLBACK, process)
    elif not process.is_dead:
        process.kill()
    process = process.machine.start("later", write)
    await asyncio.sleep(1)
    if is_active:
        await troubles.act(FaultKind.ROLLBACK, process)
    names = await listed_again(process)
    return "log" in names and "later" not in names


# -- network ---------------------------------------------------------------------------------------


async def network_delay(world: World) -> bool:
    """A call takes longer than any ordinary one."""
    node(world)
    ports = client(world).ports
    before_ns = ports.clock.monotonic_ns()
    await outcome(ports, timeout_ms=60_000)
    return ports.clock.monotonic_ns() - before_ns > 10_000_000


async def break_(world: World) -> bool:
    """A call to a living peer ends without an answer."""
    node(world)
    return await outcome(client(world).ports) == DeathHint.NONE.value


async def partition(world: World) -> bool:
    """A call to a living peer is not answered while the link is cut."""
    victim, caller = node(world), client(world)
    cutting = asyncio.create_task(act_if_active(world, FaultKind.PARTITION, victim, caller))
    await asyncio.sleep(0.01)
    ended = await outcome(caller.ports, timeout_ms=50)
    await cutting
    return ended == ErrorCode.DEADLINE_EXCEEDED.name


async def partition_one_way(world: World) -> bool:
    """Datagrams arrive in one direction only."""
    victim, caller = node(world), client(world)
    heard: list[str] = []
    world.datagrams.listen("node", lambda source, _: heard.append(source))
    world.datagrams.listen("client", lambda source, _: heard.append(source))
    cutting = asyncio.create_task(act_if_active(world, FaultKind.PARTITION_ONE_WAY, victim, caller))
    await asyncio.sleep(0.01)
    world.datagrams.send("client", "node", b"x")
    world.datagrams.send("node", "client", b"x")
    await asyncio.sleep(0.05)
    await cutting
    return len(heard) == 1


async def late_processing(world: World) -> bool:
    """A handler finishes though its caller has given up."""
    toy = Toy()
    world.machine("node").start("node", toy.live)
    await outcome(client(world).ports, COUNT, timeout_ms=900)
    await asyncio.sleep(10)
    return toy.counted == 1


async def cancel_handler(world: World) -> bool:
    """Handlers of a patient caller end before their work is done."""
    toy = Toy()
    world.machine("node").start("node", toy.live)
    ports = client(world).ports
    for _ in range(20):
        await outcome(ports, COUNT, timeout_ms=60_000)
    return toy.counted < 20


async def closed_early(world: World) -> bool:
    """A dead peer shows itself as a proxy with nobody behind it."""
    node(world).kill()
    return await outcome(client(world).ports) == DeathHint.CLOSED_EARLY.value


async def _datagrams(world: World) -> list[int]:
    heard: list[int] = []
    world.datagrams.listen("node", lambda _, datagram: heard.append(datagram[0]))
    for number in range(100):
        world.datagrams.send("client", "node", bytes([number]))
        await asyncio.sleep(0.01)
    await asyncio.sleep(10)
    return heard


async def datagram_loss(world: World) -> bool:
    """Some never arrive."""
    return len(set(await _datagrams(world))) < 100


async def datagram_duplicate(world: World) -> bool:
    """Some arrive twice."""
    heard = await _datagrams(world)
    return len(heard) > len(set(heard))


async def datagram_reorder(world: World) -> bool:
    """Some arrive before earlier ones."""
    heard = await _datagrams(world)
    return heard != sorted(heard)


# -- disk ------------------------------------------------------------------------------------------


async def _after_machine_crash(world: World) -> tuple[bytes, bytes]:
    """Sixteen appends of which the first eight are flushed: what was written, what is left."""
    process = world.machine("node").start("node", wait_forever)
    disk = process.ports.open_disk()
    file = await disk.open("log", create=True)
    await disk.flush([file], directories=[""])
    written = b""
    for number in range(16):
        block = bytes([number + 1]) * 64
        await disk.append([Append(file, [block])])
        written += block
        if number == 7:
            await disk.flush([file])
    process.machine.crash()
    process = process.machine.start("node", wait_forever)
    disk = process.ports.open_disk()
    file = await disk.open("log")
    left = await disk.read(file, 0, 1 << 20)
    assert left[:512] == written[:512], "what was flushed is there after every crash"
    return written, left


def _blocks(left: bytes) -> list[bytes]:
    return [left[begin : begin + 64] for begin in range(512, 1024, 64)]


async def lost_write(world: World) -> bool:
    """An unflushed block is missing as a whole."""
    written, left = await _after_machine_crash(world)
    return any(
        kept != sent and not kept.strip(b"\0")
        for kept, sent in zip(_blocks(left), _blocks(written), strict=True)
    )


async def torn_write(world: World) -> bool:
    """An unflushed block is there up to some byte."""
    written, left = await _after_machine_crash(world)
    return any(
        0 < len(kept.rstrip(b"\0")) < 64 and sent.startswith(kept.rstrip(b"\0"))
        for kept, sent in zip(_blocks(left), _blocks(written), strict=True)
    )


async def hole(world: World) -> bool:
    """Later bytes of an unflushed block are there without earlier ones."""
    _, left = await _after_machine_crash(world)
    return any(b"\0" in kept.rstrip(b"\0") for kept in _blocks(left))


async def lost_name(world: World) -> bool:
    """A file whose directory was not flushed is gone."""
    process = world.machine("node").start("node", wait_forever)
    disk = process.ports.open_disk()
    for number in range(10):
        file = await disk.open(f"file-{number}", create=True)
        await disk.flush([file])
    process.machine.crash()
    process = process.machine.start("node", wait_forever)
    return len(await process.ports.open_disk().list()) < 10


async def flushed_file(world: World) -> Process:
    """A file made while nothing can go wrong yet."""
    active = world.faults.active
    world.faults.heal()
    process = world.machine("node").start("node", wait_forever)
    disk = process.ports.open_disk()
    file = await disk.open("log", create=True)
    newer = await disk.open("newer", create=True)
    await disk.append([Append(file, [b"a" * 1_000])])
    await disk.flush([file, newer], directories=[""])
    await disk.shutdown()
    world.faults.active = active
    return process


async def bit_flip(world: World) -> bool:
    """A flushed byte is another one."""
    process = await flushed_file(world)
    await act_if_active(world, FaultKind.BIT_FLIP, process)
    disk = process.ports.open_disk()
    return await disk.read(await disk.open("log"), 0, 1_000) != b"a" * 1_000


async def _storage_error(work: Awaitable[object]) -> str:
    try:
        await work
    except TidelogError as error:
        return error.code.name
    return "done"


async def read_error(world: World) -> bool:
    """A read fails; the next may not."""
    disk = (await flushed_file(world)).ports.open_disk()
    return await _storage_error(disk.read(await disk.open("log"), 0, 10)) == "STORAGE_FAILED"


async def write_error(world: World) -> bool:
    """An append fails, and has written a part at most."""
    disk = (await flushed_file(world)).ports.open_disk()
    file = await disk.open("log")
    ended = await _storage_error(disk.append([Append(file, [b"b" * 100])]))
    return ended == "STORAGE_FAILED" and file.size_bytes < 1_100


async def flush_error(world: World) -> bool:
    """A flush fails, the next one fails too, and a crash takes what it did not cover."""
    process = await flushed_file(world)
    disk = process.ports.open_disk()
    file = await disk.open("log")
    await disk.append([Append(file, [b"b" * 100])])
    first = await _storage_error(disk.flush([file]))
    world.faults.heal()
    second = await _storage_error(disk.flush([file]))
    return (first, second) == ("STORAGE_FAILED", "STORAGE_FAILED")


async def no_space(world: World) -> bool:
    """An append fails for want of room."""
    disk = (await flushed_file(world)).ports.open_disk()
    file = await disk.open("log")
    return await _storage_error(disk.append([Append(file, [b"b" * 100])])) == "STORAGE_FULL"


async def read_only(world: World) -> bool:
    """Reads work, writes do not."""
    process = await flushed_file(world)
    disk = process.ports.open_disk()
    file = await disk.open("log")
    acting = asyncio.create_task(act_if_active(world, FaultKind.READ_ONLY, process))
    await asyncio.sleep(0.001)
    read = await _storage_error(disk.read(file, 0, 10))
    written = await _storage_error(disk.append([Append(file, [b"b"])]))
    await acting
    return (read, written) == ("done", "STORAGE_FAILED")


async def slow_disk(world: World) -> bool:
    """An append takes longer than any ordinary one."""
    process = await flushed_file(world)
    disk = process.ports.open_disk()
    before_ns = process.ports.clock.monotonic_ns()
    file = await disk.open("log")
    await disk.append([Append(file, [b"b"])])
    return process.ports.clock.monotonic_ns() - before_ns > 2_000_000


async def worker_crash(world: World) -> bool:
    """A job ends without an answer, and what it was about to make is not whole."""
    process = await flushed_file(world)
    disk = process.ports.open_disk()
    work = process.ports.worker.run(
        "tests.ports.support.worker_jobs:copy", b"log made.new", disk=disk
    )
    ended = await _storage_error(work)
    names = await disk.list()
    made_bytes = 0
    if "made.new" in names:
        made_bytes = (await disk.open("made.new")).size_bytes
    return ended == "UNKNOWN" and made_bytes < 1_000


SCENES: Final[dict[FaultKind, Observe]] = {
    FaultKind.PROCESS_CRASH: process_crash,
    FaultKind.MACHINE_CRASH: machine_crash,
    FaultKind.PAUSE: pause,
    FaultKind.WALL_JUMP: wall_jump,
    FaultKind.WRONG_START_CLOCK: wrong_start_clock,
    FaultKind.NETWORK_DELAY: network_delay,
    FaultKind.BREAK: break_,
    FaultKind.PARTITION: partition,
    FaultKind.PARTITION_ONE_WAY: partition_one_way,
    FaultKind.LATE_PROCESSING: late_processing,
    FaultKind.CANCEL_HANDLER: cancel_handler,
    FaultKind.CLOSED_EARLY: closed_early,
    FaultKind.DATAGRAM_LOSS: datagram_loss,
    FaultKind.DATAGRAM_DUPLICATE: datagram_duplicate,
    FaultKind.DATAGRAM_REORDER: datagram_reorder,
    FaultKind.LOST_WRITE: lost_write,
    FaultKind.TORN_WRITE: torn_write,
    FaultKind.HOLE: hole,
    FaultKind.LOST_NAME: lost_name,
    FaultKind.BIT_FLIP: bit_flip,
    FaultKind.READ_ERROR: read_error,
    FaultKind.WRITE_ERROR: write_error,
    FaultKind.FLUSH_ERROR: flush_error,
    FaultKind.NO_SPACE: no_space,
    FaultKind.READ_ONLY: read_only,
    FaultKind.SLOW_DISK: slow_disk,
    FaultKind.WORKER_CRASH: worker_crash,
    FaultKind.CLOCK_RATE: clock_rate,
    FaultKind.WIPE: wipe,
    FaultKind.ROLLBACK: rollback,
}
