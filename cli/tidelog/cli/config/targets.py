"""Whose settings `config get`, `config set` and `config delete` mean, and what is to change."""

import argparse
from typing import TYPE_CHECKING

from tidelog.cli.frame.parser import Parser
from tidelog.cli.quorum.arguments import node_id
from tidelog.cli.show.errors import BadInput

if TYPE_CHECKING:
    from tidelog.client import ConfigResource


def add_target(parser: Parser) -> None:
    """One of four."""
    parser.add_argument("--topic", metavar="TOPIC", help="a topic's settings")
    parser.add_argument("--broker", type=node_id, metavar="BROKER_ID", help="one broker's")
    parser.add_argument("--cluster", action="store_true", help="all brokers'")
    parser.add_argument("--group", metavar="GROUP", help="a consumer group's")


def target(
    arguments: argparse.Namespace, command: str, changes: "dict[str, str | None] | None" = None
) -> "ConfigResource":
    """What was named; BadInput unless exactly one thing was."""
    given = {
        "--topic": arguments.topic,
        "--broker": None if arguments.broker is None else str(arguments.broker),
        "--cluster": "" if arguments.cluster else None,
        "--group": arguments.group,
    }
    named = [option for option, name in given.items() if name is not None]
    if len(named) != 1:
        why = f"{' and '.join(named)} exclude each other" if named else "whose settings is missing"
        raise BadInput(command, why, f"say one of {', '.join(given)}")
    from tidelog.client import ConfigResource, ConfigResourceType

    (option,) = named
    kind = ConfigResourceType(option.removeprefix("--"))
    return ConfigResource(kind, given[option] or "", changes or {})


def target_name(resource: "ConfigResource") -> str:
    """In words."""
    kind = resource.resource_type.value
    return f"the {kind}" if not resource.name else f"{kind} {resource.name}"


def changes_of(
    pairs: list[tuple[str, str]], unset: list[str], command: str
) -> dict[str, str | None]:
    """Settings by name, None to unset; no name twice."""
    changes: dict[str, str | None] = {}
    for name, value in [*pairs, *((name, None) for name in unset)]:
        if name in changes:
            raise BadInput(command, f"`{name}` is given twice", "leave one of them out")
        changes[name] = value
    return changes
