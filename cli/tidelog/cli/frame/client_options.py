"""`-X name=value`: arguments of the SDK's clients, typed on a command line.

Owns the conversion from text and the refusal of names that are unknown or that the command sets by
itself. Kafka's spelling with dots means the same argument.
"""

from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.frame.parser import Parser, pair
from tidelog.cli.show.errors import BadInput
from tidelog.wire.nearest import nearest_name

if TYPE_CHECKING:
    import msgspec

_OURS: Final = {
    "bootstrap_servers": "say -b HOST:PORT",
    "auto_offset_reset": "say -o beginning or -o end",
    "group_id": "say -g GROUP",
    "isolation_level": "say --isolation read_committed",
    "transactional_id": "leave it out: a command ends no transaction",
    "transaction_timeout_ms": "leave it out: a command ends no transaction",
    "enable_auto_commit": "with -g, what is printed is committed",
    "consumer_timeout_ms": "say -e to stop at the end",
    "key_serializer": "records are bytes here",
    "value_serializer": "records are bytes here",
    "key_deserializer": "records are bytes here",
    "value_deserializer": "records are bytes here",
    "partitioner": "say -p to choose a partition",
}
"""What a command decides by itself, and what to do instead."""


def add_options(parser: Parser) -> None:
    """-X, repeated."""
    parser.add_argument(
        "-X",
        "--option",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an argument of the client, such as security_protocol=SSL; may be repeated "
        "(docs/configuration.md lists them)",
    )


def convert(
    pairs: list[tuple[str, str]], kind: "type[msgspec.Struct]", command: str
) -> dict[str, Any]:
    """Keyword arguments for the client whose options `kind` describes."""
    import msgspec

    from tidelog.client.arguments.options import NOT_YET

    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    given: dict[str, Any] = {}
    for typed, text in pairs:
        what = f"{command} -X {typed}={text}"
        name = typed.replace(".", "_").replace("-", "_")
        if name in _OURS:
            raise BadInput(what, f"`{typed}` cannot be set with -X", _OURS[name])
        if name in NOT_YET:
            raise BadInput(
                what, f"this release does not have {NOT_YET[name]} yet", f"leave -X {typed} out"
            )
        if name not in types:
            found = nearest_name(name, sorted(set(types) - set(_OURS)))
            hint = f"did you mean {found}?" if found else "docs/configuration.md lists them all"
            raise BadInput(what, f"there is no client option `{typed}`", hint)
        if name in given:
            raise BadInput(what, f"`{typed}` is given twice", "leave one of them out")
        try:
            given[name] = msgspec.convert(text, types[name], strict=False)
        except msgspec.ValidationError as error:
            raise BadInput(what, str(error).lower(), f"correct the value of {typed}") from None
    return given
