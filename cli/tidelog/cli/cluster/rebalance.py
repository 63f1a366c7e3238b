"""`tidelog cluster rebalance`."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, print_json
from tidelog.cli.frame.interrupt import on_interrupt
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json, number
from tidelog.cli.partition.arguments import shown
from tidelog.cli.partition.throttle import add_throttle
from tidelog.cli.show.errors import EXIT_FAILED, EXIT_OK, BadInput, CommandError, print_stderr
from tidelog.cli.show.table import count, listed, size, table

if TYPE_CHECKING:
    from tidelog.cli.cluster.rebalance_plan import Forecast
    from tidelog.cli.cluster.rebalance_run import Execution
    from tidelog.client import AdminClient

COMMAND: Final = "tidelog cluster rebalance"
DESCRIPTION: Final = (
    "Spread replicas and leaders evenly over the brokers that are live, with few moves: after "
    "brokers have come, for example. No partition gets two replicas on one broker, or stands in "
    "fewer racks than before; brokers that are fenced or being emptied get nothing. Without "
    "--execute it only prints the plan.\n\n"
    "With --execute it begins a few moves at a time, shows how far they are, gives the lead to "
    "the preferred replicas, and takes the throttle off in the end. Interrupted, it begins "
    "nothing more; what has begun goes on by itself. Typed again, it plans anew from what is."
)
EXAMPLES: Final = (
    (COMMAND, "the plan"),
    (f"{COMMAND} --execute --throttle 52428800", "do it, with 50 MiB/s to each broker at most"),
    (f"{COMMAND} --topic orders --max-moves 10 --json", "one topic, ten partitions, for programs"),
)
_MOVES_MAX: Final = 10_000
_SECONDS_MAX: Final = 30 * 86_400
_AT_ONCE: Final = 20
_SECONDS: Final = 86_400
_ROWS_MAX: Final = 100
_MOVES_HEAD: Final = ("Partition", "Replicas", "Planned", "Copied")
_BROKERS_HEAD: Final = (
    *("Broker", "Rack", "State", "Replicas", "Planned"),
    *("Leads", "WillLead", "Incoming"),
)


def configure(parser: Parser) -> None:
    """What, and how fast."""
    parser.add_argument("--execute", action="store_true", help="do it")
    add_throttle(parser, "with --execute: ")
    parser.add_argument(
        "--at-once",
        type=number(1, _MOVES_MAX),
        metavar="N",
        help=f"with --execute: so many partitions move at a time (default: {_AT_ONCE})",
    )
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="with --execute: begin everything and return",
    )
    parser.add_argument(
        "--timeout",
        type=number(1, _SECONDS_MAX),
        metavar="SECONDS",
        help=f"with --execute: wait no longer (default: {_SECONDS})",
    )
    parser.add_argument(
        "--topic", action="append", default=[], metavar="TOPIC", help="only it; may be repeated"
    )
    parser.add_argument(
        "--max-moves",
        type=number(1, _MOVES_MAX),
        default=0,
        metavar="N",
        help="change at most so many partitions (default: 1000)",
    )
    add_json(
        parser,
        "{is_executed, moves: [{topic, partition, replicas, planned_replicas, copied_bytes, "
        "error}], brokers: [{broker_id, rack, state, replicas_before, replicas_after, "
        "leaders_before, leaders_after, incoming_bytes}], copied_bytes, warnings: [sentence]}; "
        "-1: not known; error null: none",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Plan, and carry it out if that was said."""
    _check(arguments)
    from tidelog.cli.cluster.rebalance_run import Execution

    with admin_client(arguments) as admin:
        found, warnings = _plan(admin, arguments)
        if not arguments.json:
            print(as_text(found, warnings))
        if not arguments.execute or not found.moves:
            if arguments.json:
                print_json(as_json(found, warnings, None))
            elif found.moves:
                print("nothing was done; add --execute")
            return EXIT_OK
        execution = Execution(admin, found.moves, throttle=arguments.throttle, say=print_stderr)
        _carry_out(execution, arguments)
    if arguments.json:
        print_json(as_json(found, warnings, execution))
    for place, error in execution.refused.items():
        print_stderr(f"{shown(place)} was not moved: {error.code.name}: {error.happened}")
    return EXIT_FAILED if execution.refused else EXIT_OK


def _check(arguments: argparse.Namespace) -> None:
    if not arguments.execute:
        for name in ("throttle", "at_once", "no_wait", "timeout"):
            if getattr(arguments, name):
                option = f"--{name.replace('_', '-')}"
                why = f"{option} goes with --execute only"
                raise BadInput(COMMAND, why, "add --execute, or leave it out to see the plan")
    if arguments.no_wait and (arguments.at_once or arguments.timeout):
        why = "--no-wait begins everything at once and waits for nothing"
        raise BadInput(COMMAND, why, "leave --at-once and --timeout out")


def _plan(
    admin: "AdminClient", arguments: argparse.Namespace
) -> "tuple[Forecast, tuple[str, ...]]":
    from tidelog.cli.cluster import rebalance_plan as planning

    plan = admin.plan_partition_reassignments(arguments.topic, moves_max=arguments.max_moves)
    moving = admin.list_partition_reassignments()
    standing = planning.standings(admin.describe_topics(), moving)
    found = planning.forecast(standing, admin.list_brokers(), plan.moves)
    wrong = planning.problems(found)
    if wrong:
        raise CommandError(
            COMMAND,
            f"the plan does not hold for the cluster as it is now: {wrong[0]}",
            "a broker came or went meanwhile: type it again",
        )
    warnings = plan.warnings
    if moving:
        others = count(len(moving), "partition")
        warnings = (*warnings, f"{others} on the move already, left out of the plan.")
    return found, warnings


def _carry_out(execution: "Execution", arguments: argparse.Namespace) -> None:
    from tidelog.cli.cluster.rebalance_run import out_of_time
    from tidelog.wire.errors import TidelogError

    seconds = arguments.timeout or _SECONDS
    on_interrupt(lambda: print_stderr(execution.advice()))
    try:
        if arguments.no_wait:
            execution.begin()
            print_stderr(execution.advice())
        elif not execution.run(at_once=arguments.at_once or _AT_ONCE, seconds_max=seconds):
            raise out_of_time(execution, seconds)
    except KeyboardInterrupt:
        print_stderr(execution.advice())
        raise
    except TidelogError as error:
        raise TidelogError(
            error.code, tried=error.tried, happened=error.happened, hint=execution.advice()
        ) from None


def as_text(found: "Forecast", warnings: tuple[str, ...]) -> str:
    """What a person reads."""
    brokers = table(
        _BROKERS_HEAD,
        [
            (
                each.broker_id,
                each.rack or "-",
                each.state,
                each.replicas_before,
                each.replicas_after,
                each.leaders_before,
                each.leaders_after,
                size(each.incoming_bytes),
            )
            for each in found.brokers
        ],
        right="Broker Replicas Planned Leads WillLead Incoming",
    )
    told = [f"warning: {each}" for each in warnings]
    if not found.moves:
        return "\n".join([brokers, *told, "there is nothing to move"])
    rows = [
        (shown(each.partition), listed(each.before), listed(each.after), size(each.copied_bytes))
        for each in found.moves[:_ROWS_MAX]
    ]
    more = len(found.moves) - len(rows)
    rest = [f"and {more} more; --json lists them all"] if more else []
    sums = (
        f"{count(len(found.moves), 'partition')} to change, "
        f"{count(found.replicas_copied, 'replica')} to copy: {size(found.copied_bytes)}"
    )
    moves = table(_MOVES_HEAD, rows, right="Copied")
    return "\n".join([moves, *rest, "", brokers, *told, sums])


def as_json(
    found: "Forecast", warnings: tuple[str, ...], execution: "Execution | None"
) -> dict[str, object]:
    """What a program reads; the names stay."""
    import msgspec

    refused = {} if execution is None else execution.refused
    return {
        "is_executed": execution is not None,
        "moves": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "replicas": list(each.before),
                "planned_replicas": list(each.after),
                "copied_bytes": each.copied_bytes,
                "error": refused[each.partition].code.name if each.partition in refused else None,
            }
            for each in found.moves
        ],
        "brokers": [msgspec.structs.asdict(each) for each in found.brokers],
        "copied_bytes": found.copied_bytes,
        "warnings": list(warnings),
    }
