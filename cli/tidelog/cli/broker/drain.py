"""`tidelog broker drain`."""

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from tidelog.cli.frame.admin import admin_client, note_voter, print_json
from tidelog.cli.frame.interrupt import on_interrupt
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json, number
from tidelog.cli.partition.throttle import STAYS, Say, Throttle, add_throttle
from tidelog.cli.quorum.arguments import node_id
from tidelog.cli.show.errors import EXIT_FAILED, EXIT_OK, BadInput, CommandError, print_stderr
from tidelog.cli.show.table import count

if TYPE_CHECKING:
    from tidelog.client.types.admin import BrokerStatus, DrainOutcome

COMMAND: Final = "tidelog broker drain"
DESCRIPTION: Final = (
    "Empty a broker, so that it can be taken away: it gets no new replicas, its leaders and "
    "replicas move to others, if it is dead from the other replicas. The command returns when "
    "that has begun; `tidelog broker list` shows the progress. With --wait it returns when the "
    "broker is empty, and takes the throttle off. `tidelog broker remove` forgets the broker "
    "afterwards."
)
EXAMPLES: Final = (
    (f"{COMMAND} 3", "begin"),
    (f"{COMMAND} 3 --wait --throttle 52428800", "all of it, with 50 MiB/s to each other broker"),
    (f"{COMMAND} 3 --dry-run", "whether the others have room"),
    (f"{COMMAND} 3 --cancel", "call it off; what has moved stays where it is"),
)
POLL_SECONDS: Final = 1.0
FAILURES_MAX: Final = 6
"""Polls in a row that nobody answered."""
_SECONDS: Final = 86_400
_SECONDS_MAX: Final = 30 * 86_400


class BrokerLister(Protocol):
    """What is needed of the admin client while it waits."""

    def list_brokers(self, timeout_ms: int | None = None) -> "list[BrokerStatus]":
        """As the controller knows them."""
        ...


def configure(parser: Parser) -> None:
    """Which broker."""
    parser.add_argument("broker", type=node_id, metavar="BROKER_ID", help="its id")
    parser.add_argument("--cancel", action="store_true", help="call the draining off")
    add_throttle(parser)
    parser.add_argument("--wait", action="store_true", help="return when the broker is empty")
    parser.add_argument(
        "--timeout",
        type=number(1, _SECONDS_MAX),
        metavar="SECONDS",
        help=f"with --wait: no longer (default: {_SECONDS})",
    )
    parser.add_argument("--dry-run", action="store_true", help="check everything, change nothing")
    add_json(
        parser,
        "{broker_id, is_changed, remaining_replicas, warnings: [sentence]}; remaining_replicas: "
        "when it returns",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Begin, and say how much has to move."""
    _check(arguments)
    with admin_client(arguments) as admin:
        throttle = Throttle(admin, arguments.throttle)
        if arguments.wait:
            throttle.remember()
            on_interrupt(lambda: print_stderr(_advice(throttle)))
        outcome = admin.drain_broker(
            arguments.broker,
            cancel=arguments.cancel,
            validate_only=arguments.dry_run,
            throttle_bytes_per_second=arguments.throttle,
        )
        if not arguments.json:
            _tell(arguments, outcome)
            if not arguments.cancel:
                note_voter(admin, arguments.broker)
        left = outcome.remaining_replicas
        if arguments.wait and not outcome.warnings:
            _wait(admin, throttle, arguments)
            left = 0
    if arguments.json:
        print_json(
            {
                "broker_id": arguments.broker,
                "is_changed": not arguments.dry_run,
                "remaining_replicas": left,
                "warnings": outcome.warnings,
            }
        )
    elif arguments.wait and not left:
        broker_id = arguments.broker
        print(f"broker {broker_id} is empty; stop it, then `tidelog broker remove {broker_id}`")
    return EXIT_FAILED if arguments.wait and left else EXIT_OK


def _check(arguments: argparse.Namespace) -> None:
    if arguments.timeout and not arguments.wait:
        raise BadInput(COMMAND, "--timeout goes with --wait only", "add --wait, or leave it out")
    if arguments.wait and (arguments.cancel or arguments.dry_run):
        option = "--cancel" if arguments.cancel else "--dry-run"
        raise BadInput(COMMAND, f"with {option} there is nothing to wait for", "leave --wait out")


def _tell(arguments: argparse.Namespace, outcome: "DrainOutcome") -> None:
    if arguments.dry_run:
        print("nothing was done; ", end="")
    if arguments.cancel:
        print(f"broker {arguments.broker} is not drained any more")
    else:
        left = outcome.remaining_replicas
        verb = "has" if left == 1 else "have"
        print(f"broker {arguments.broker}: {count(left, 'replica')} {verb} to move")
    for warning in outcome.warnings:
        print(f"warning: {warning}")
    if arguments.throttle and not arguments.dry_run and not arguments.wait:
        print(STAYS)


def _wait(admin: BrokerLister, throttle: Throttle, arguments: argparse.Namespace) -> None:
    seconds = arguments.timeout or _SECONDS
    advice = _advice(throttle)
    try:
        if not wait_empty(admin, arguments.broker, seconds_max=seconds, say=print_stderr):
            what = f"{COMMAND} {arguments.broker}"
            raise CommandError(what, f"it is not empty after {seconds} s", advice)
    except KeyboardInterrupt:
        print_stderr(advice)
        raise
    throttle.restore(print_stderr)


def _advice(throttle: Throttle) -> str:
    return f"it goes on; `tidelog broker list` shows it{throttle.advice()}"


def wait_empty(
    admin: BrokerLister,
    broker_id: int,
    *,
    seconds_max: float,
    say: Say,
    now: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> bool:
    """Until the broker holds nothing, or is not there any more; False: not in time."""
    from tidelog.wire.errors import TidelogError

    deadline = now() + seconds_max
    told, failures = "", 0
    while True:
        try:
            held = [each for each in admin.list_brokers() if each.broker_id == broker_id]
        except TidelogError as error:
            failures += 1
            if failures >= FAILURES_MAX or not error.retriable:
                raise
        else:
            failures = 0
            if not held or not held[0].replica_count:
                return True
            left = count(held[0].replica_count, "replica")
            text = f"broker {broker_id}: {left} left, it leads {held[0].leader_count}"
            if text != told:
                told = text
                say(text)
        if now() > deadline:
            return False
        pause(POLL_SECONDS)
