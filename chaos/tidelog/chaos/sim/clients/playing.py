"""One playing of a scene: a client of its own, a call, perhaps a strike at one of its messages.

Owns what is written down of it, and the judgement: did the call end in time, with what is right,
and was the log told while it waited. It must never help the client.
"""

import asyncio
import logging
from typing import Any, Final

from tidelog.chaos.sim.clients.scene import ANYTHING, Scene, Stage
from tidelog.chaos.sim.clients.sdk import ClientLog
from tidelog.chaos.sim.clients.strikes import Strike
from tidelog.chaos.sim.ports.exchange import Exchange
from tidelog.chaos.sim.world.process import Process, SimulatedPorts
from tidelog.chaos.sim.world.world import World
from tidelog.wire.errors import ErrorCode, TidelogError

_MS: Final = 1_000_000
BOUND_NS: Final = 15_000 * _MS
"""For progress, from when the cluster serves again: nine seconds until a silent connection is given
up (ping and its timeout), a second of backoff, and what a broker waits itself for another one that
it passes a call on to. The longest that was seen is twelve, of a call that is made of four."""
QUIET_NS: Final = 15_000 * _MS
"""Whoever waits longer has told the log: nine seconds until a silent connection is given up, five
in which a trouble may pass, and one for the look that finds it."""
CLOSE_NS: Final = 31_000 * _MS
"""A group's farewell may take half a minute, and no longer."""


class Playing:
    """Of one scene, once."""

    def __init__(
        self, world: World, scene: Scene, stage: Stage, *, is_warm: bool, log: ClientLog
    ) -> None:
        self.name = f"client-{stage.number}"
        self.messages = 0
        """Between the client and brokers, since the call began."""
        self.began_ns: int | None = None
        self.ended_ns: int | None = None
        self.closed_ns: int | None = None
        self.violations: list[str] = []
        self._world = world
        self._scene = scene
        self._stage = stage
        self._is_warm = is_warm
        self._log = log
        self._strike: Strike | None = None
        self._moment = 0
        self._is_ready = False
        self._go = asyncio.Event()
        self._result: object = None
        self._error: BaseException | None = None
        self.process: Process = world.machine(self.name).start(self.name, self._live)

    def __str__(self) -> str:
        phase = "warm" if self._is_warm else "fresh"
        text = f"{self._scene.name} ({phase})"
        if self._strike is not None:
            fault, role = self._strike.fault.value, self._strike.role.value
            text += f", {fault} of {role} at message {self._moment}"
        return text

    # -- for who directs it --------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether the call may begin."""
        return self._is_ready

    def begin(self, strike: Strike | None, moment: int) -> None:
        """The call begins; the strike comes with that message of it, 0: just before."""
        self._strike, self._moment = strike, moment
        if strike is not None and moment == 0:
            strike.begin(self.name)
        self._go.set()

    def tap(self, exchange: Exchange, direction: str, message: bytes) -> None:
        """Somebody sent a message."""
        del direction, message
        if exchange.caller.place is not self.process or not self._go.is_set():
            return
        if self.ended_ns is not None:
            return
        self.messages += 1
        if self._strike is not None and self.messages == self._moment:
            loop = self._world.loop
            # Not within the step that sends it: whoever dies now ends that step first.
            loop.call_soon(self._strike.begin, self.name, context=loop.world_context)

    def is_stuck(self) -> bool:
        """Whether it has had its time."""
        if self.ended_ns is not None or self.began_ns is None:
            return False
        since_ns = self.began_ns
        if self._strike is not None and self._strike.at_ns is not None:
            if self._strike.served_ns is None:
                return False
            since_ns = max(since_ns, self._strike.served_ns)
        return self._world.loop.now_ns - since_ns > BOUND_NS

    def is_closing_for_long(self) -> bool:
        """The same of its end."""
        if self.ended_ns is None or self.closed_ns is not None:
            return False
        return self._world.loop.now_ns - self.ended_ns > CLOSE_NS

    # -- the client ----------------------------------------------------------------------------

    async def _live(self, ports: SimulatedPorts) -> None:
        del ports
        scene, stage, loop = self._scene, self._stage, self._world.loop
        client: Any = None
        if self._is_warm:
            client = scene.make(stage)
            if scene.warm is not None:
                await scene.warm(stage, client)
        self._is_ready = True
        await self._go.wait()
        self.began_ns = loop.now_ns
        try:
            if client is None:
                client = scene.make(stage)
            self._result = await scene.act(stage, client)
        except Exception as error:  # noqa: BLE001 - whatever the SDK raises is judged
            self._error = error
        self.ended_ns = loop.now_ns
        await client.close()
        self.closed_ns = loop.now_ns

    # -- the verdict ---------------------------------------------------------------------------

    def judge(self) -> list[str]:
        """After its end, or when it has had its time."""
        if self.process.exit_error is not None:
            self.violations.append(f"broken: {self}: {self.process.exit_error!r}")
        elif self.ended_ns is None:
            self.violations.append(f"stuck: {self}; the log: {self._last_line()}")
        elif self.closed_ns is None:
            self.violations.append(f"late_close: {self}; the log: {self._last_line()}")
        else:
            self._judge_end()
        self._judge_log()
        return self.violations

    def _judge_end(self) -> None:
        error = self._error
        if error is None:
            right = self._scene.expected(self._stage)
            if right is not ANYTHING and self._result != right:
                self.violations.append(f"wrong: {self}: {self._result!r}, not {right!r}")
        elif not isinstance(error, TidelogError):
            self.violations.append(f"untyped: {self}: {error!r}")
        elif not (self._scene.may_be_doubtful and _is_doubtful(error)):
            self.violations.append(f"surfaced: {self}: {error!r}")

    def _judge_log(self) -> None:
        lines = [line for line in self._log.lines if line.process == self.name]
        bugs = [line.text for line in lines if line.level >= logging.CRITICAL]
        self.violations += [f"broken: {self}: {text}" for text in bugs]
        if self._strike is None or self._strike.at_ns is None or self.began_ns is None:
            return
        since_ns = max(self.began_ns, self._strike.at_ns)
        ended_ns = self._world.loop.now_ns if self.ended_ns is None else self.ended_ns
        told = [line.at_ns for line in lines if line.at_ns >= since_ns]
        if ended_ns - since_ns > QUIET_NS and (not told or told[0] - since_ns > QUIET_NS):
            waited_s = (ended_ns - since_ns) / 1e9
            self.violations.append(f"silent: {self}: waited {waited_s:.1f} s without a line")

    def _last_line(self) -> str:
        lines = [line.text for line in self._log.lines if line.process == self.name]
        return lines[-1] if lines else "nothing"


def _is_doubtful(error: TidelogError) -> bool:
    """Whether it says that the call may have been done: also a refusal may, of a second try."""
    is_unknown = error.code is ErrorCode.INDETERMINATE
    return is_unknown or "may have been done" in error.happened


def is_over(playing: Playing) -> bool:
    """Whether there is nothing more to wait for."""
    return (
        playing.closed_ns is not None
        or playing.process.is_dead
        or playing.is_stuck()
        or playing.is_closing_for_long()
    )
