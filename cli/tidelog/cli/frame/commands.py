"""The list of commands: words, the module that does it, one line of what it does.

Owns the names. A module is imported when its command is called or asked for help, and has
`DESCRIPTION`, `EXAMPLES`, `configure(parser)` and `run(arguments) -> exit code`.
"""

import importlib
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    import argparse

    from tidelog.cli.frame.parser import Parser


class Entry(NamedTuple):
    """One command."""

    module: str
    summary: str


class CommandModule(Protocol):
    """What the module of a command has."""

    DESCRIPTION: str
    EXAMPLES: tuple[tuple[str, str], ...]
    """What to type, and what it does."""

    def configure(self, parser: "Parser") -> None:
        """Add the arguments; imports nothing heavy."""

    def run(self, arguments: "argparse.Namespace") -> int:
        """Do it; the exit code."""


COMMANDS: Final[dict[tuple[str, ...], Entry]] = {
    ("dev",): Entry("node.dev", "run one node on this machine, in the foreground"),
    ("server",): Entry("node.server", "run one node of a cluster, in the foreground"),
    ("topic", "create"): Entry("topic.create", "create a topic"),
    ("topic", "list"): Entry("topic.list", "list the topics"),
    ("topic", "describe"): Entry("topic.describe", "settings, leaders, replicas and offsets"),
    ("topic", "alter"): Entry("topic.alter", "more partitions, other settings"),
    ("topic", "delete"): Entry("topic.delete", "delete topics with their records"),
    ("topic", "trim"): Entry("topic.trim", "delete records below an offset"),
    ("produce",): Entry("records.produce", "write lines from stdin as records"),
    ("consume",): Entry("records.consume", "read records to stdout"),
    ("group", "list"): Entry("group.list", "the consumer groups and their lag"),
    ("group", "describe"): Entry("group.describe", "members, offsets and lag of groups"),
    ("group", "reset-offsets"): Entry("group.reset_offsets", "where a group goes on reading"),
    ("group", "remove-members"): Entry("group.remove_members", "make members leave a group"),
    ("group", "delete-offsets"): Entry("group.delete_offsets", "forget offsets of partitions"),
    ("group", "delete"): Entry("group.delete", "delete groups with their offsets"),
    ("txn", "list"): Entry("txn.list", "the transactional ids and how long each has been open"),
    ("txn", "describe"): Entry("txn.describe", "since when, until when, which partitions"),
    ("txn", "abort"): Entry("txn.abort", "end a transaction that holds readers back"),
    ("txn", "prepared"): Entry("txn.prepared", "transactions that wait for a decision"),
    ("txn", "hanging"): Entry("txn.hanging", "open transactions that nobody will end"),
    ("cluster", "describe"): Entry("cluster.describe", "the cluster's id, controller and brokers"),
    ("cluster", "rebalance"): Entry("cluster.rebalance", "spread replicas and leaders evenly"),
    ("cluster", "features"): Entry("cluster.features", "levels of features that are in force"),
    ("cluster", "confirm-clock"): Entry(
        "cluster.confirm_clock", "say that the clock of a lone node is right"
    ),
    ("broker", "list"): Entry("broker.list", "the brokers as the controller knows them"),
    ("broker", "log-dirs"): Entry("broker.log_dirs", "data directories, their replicas and sizes"),
    ("broker", "drain"): Entry("broker.drain", "empty a broker"),
    ("broker", "remove"): Entry("broker.remove", "forget a broker that is empty and stopped"),
    ("partition", "elect-leaders"): Entry("partition.elect_leaders", "preferred or unclean"),
    ("partition", "reassign"): Entry("partition.reassign", "move replicas to other brokers"),
    ("partition", "list-reassignments"): Entry("partition.list_reassignments", "moves under way"),
    ("metadata", "ls"): Entry("metadata.ls", "names in the cluster's metadata"),
    ("metadata", "show"): Entry("metadata.show", "what the metadata holds at a place"),
    ("metadata", "export"): Entry("metadata.export", "write a copy of all metadata to a file"),
    ("config", "get"): Entry("config.get", "settings of topic, broker or cluster"),
    ("config", "set"): Entry("config.set", "set settings while the cluster runs"),
    ("config", "delete"): Entry("config.delete", "unset settings while the cluster runs"),
    ("quota", "set"): Entry("quota.set", "limit what clients of a client id take"),
    ("quota", "list"): Entry("quota.list", "the quotas by client id"),
    ("quota", "delete"): Entry("quota.delete", "take limits of a client id away"),
    ("quorum", "describe"): Entry("quorum.describe", "leader, term, voters, learners, their lag"),
    ("quorum", "add-voter"): Entry("quorum.add_voter", "make a learner a voter"),
    ("quorum", "remove-voter"): Entry("quorum.remove_voter", "remove a voter or learner"),
    ("quorum", "transfer"): Entry("quorum.transfer", "hand the leadership over"),
    ("quorum", "recover"): Entry("quorum.recover", "go on without a majority; may lose metadata"),
    ("config", "check"): Entry("config.check", "check a node's configuration file"),
    ("config", "show"): Entry("config.show", "a node's settings and where each comes from"),
    ("doctor",): Entry("node.doctor", "look whether this machine can run a node well"),
    ("storage", "format"): Entry("storage.format", "make an empty directory a node's, once"),
    ("storage", "info"): Entry("storage.info", "what a stopped controller's directory holds"),
    ("storage", "add-log-dirs"): Entry("storage.add_log_dirs", "make directories a node's, too"),
    ("storage", "random-uuid"): Entry("storage.random_uuid", "print random uuids"),
    ("bench", "produce"): Entry("bench.produce", "how fast records are stored"),
    ("bench", "consume"): Entry("bench.consume", "how fast records are read"),
    ("bench", "end-to-end"): Entry("bench.end_to_end", "how long records are on their way"),
    ("log", "dump"): Entry("log.dump", "print a segment file, readable"),
    ("completion",): Entry("frame.completion", "print a completion script for bash, zsh or fish"),
    ("version",): Entry("node.version", "print the release"),
}

GROUPS: Final = {
    "topic": "named streams of records",
    "group": "consumers that share the partitions of topics",
    "txn": "transactions, and what holds readers of committed records back",
    "cluster": "the nodes together",
    "broker": "the nodes that hold records",
    "partition": "where replicas stand and who leads",
    "metadata": "everything that the quorum holds",
    "quorum": "the voters that hold all metadata",
    "quota": "what clients may take, by client id",
    "config": "a node's configuration, and settings of the running cluster",
    "storage": "the directory of a node",
    "bench": "how fast it is, from here",
    "log": "the files of a partition",
}


def load(words: tuple[str, ...]) -> CommandModule:
    """Import the module of a command."""
    module = importlib.import_module(f"tidelog.cli.{COMMANDS[words].module}")
    return cast(CommandModule, module)


def make_parser(words: tuple[str, ...]) -> "Parser":
    """The parser of a command, with its help."""
    from tidelog.cli.frame.parser import Parser

    module = load(words)
    parser = Parser(
        command=" ".join(("tidelog", *words)),
        description=module.DESCRIPTION,
        examples=module.EXAMPLES,
    )
    module.configure(parser)
    return parser


def overview(group: str = "") -> str:
    """What `tidelog --help` or `tidelog GROUP --help` prints."""
    chosen = {words: entry for words, entry in COMMANDS.items() if not group or words[0] == group}
    width = max(len(" ".join(words)) for words in chosen)
    lines = [f"  {' '.join(words):<{width}}  {entry.summary}" for words, entry in chosen.items()]
    if group:
        head = [f"usage: tidelog {group} COMMAND [OPTION ...]", "", _sentence(GROUPS[group])]
        return "\n".join([*head, "", *lines, "", f"`tidelog {group} COMMAND --help` tells more."])
    return "\n".join(
        [
            "usage: tidelog COMMAND [OPTION ...]",
            "",
            "A distributed commit log: topics, partitions, records.",
            "",
            *lines,
            "",
            "Commands that talk to a cluster find it by -b HOST:PORT, else by TIDELOG_BOOTSTRAP,",
            "else at localhost:9192; TIDELOG_SECURITY_PROTOCOL=SSL and TIDELOG_SSL_CAFILE encrypt.",
            "They wait 3 s to reach it, 10 s for an answer, or as long as TIDELOG_TIMEOUT_MS says.",
            "`tidelog COMMAND --help` tells more, with examples.",
        ]
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
