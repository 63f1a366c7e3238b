"""The words of a golden script, each a function from words to the lines to show.

voters 1 2 3            members that start empty with this bootstrap (learners: `(4)`)
joining 4               a member that starts with an empty bootstrap
log 1 term=2 1 1 2      member 1 starts anew with a log of these terms and this term
tick 1 100 | quiet 1    time passes for one member; quiet: exactly an election timeout
campaign 1              time passes until member 1 wants to be elected
propose 1 x             read 1 | transfer 1 2 | learn 1 4 | promote 1 4 | remove 1 4
deliver 2 | drop 2      messages under way to a member; `drop 1→2`: only those on the way
stabilize [1 2]         deliver until all is said, among all or some
hold 1 | flush 1        keep what is to be persisted back, let it become durable
crash 1 | restart 1     what was not flushed is gone
corrupt 1 4             entry 4 on is found damaged at the next start
snapshot 1 5            member 1 takes a snapshot that ends before index 5
died 2 1                member 2 is told that node 1's process is gone
status [1] | entries 1 | network
"""

from collections.abc import Callable

import msgspec

from tests.metadata_quorum.raft import notation
from tests.metadata_quorum.raft.script_world import Node, World, member, member_id
from tidelog.metadata_quorum.raft import inputs
from tidelog.wire.ids import Term

SAID_BY_ALL = "ok"


class Script:
    """One script's world and its words."""

    def __init__(self) -> None:
        self.world = World()
        self.words: dict[str, Callable[[list[str]], list[str]]] = {
            "options": self._options,
            "voters": self._voters,
            "joining": self._joining,
            "log": self._log,
            "tick": lambda words: self._tick(words[0], int(words[1])),
            "quiet": lambda words: self._tick(words[0], self.world.options.election_timeout_ms),
            "campaign": lambda words: self._tick(
                words[0], 2 * self.world.options.election_timeout_ms
            ),
            "elect": self._elect,
            "propose": self._propose,
            "read": lambda words: self._ask(words[0], inputs.Read),
            "transfer": self._transfer,
            "learn": self._learn,
            "promote": lambda words: self._member_change(words, inputs.Promote),
            "remove": lambda words: self._member_change(words, inputs.RemoveMember),
            "deliver": self.world.deliver,
            "drop": self._drop,
            "stabilize": lambda words: self.world.stabilize(words or list(self.world.nodes)),
            "hold": self._hold,
            "flush": self._flush,
            "flush-one": lambda words: self.world.flush(self._node(words[0]), 1),
            "crash": self._crash,
            "restart": self._restart,
            "corrupt": self._corrupt,
            "snapshot": lambda words: self.world.take_snapshot(self._node(words[0]), int(words[1])),
            "died": self._died,
            "status": self._status,
            "entries": self._entries,
            "network": lambda _: [notation.message(one) for one in self.world.network],
        }

    def run(self, line: str) -> str:
        """The lines that a command's line is answered with."""
        word, *rest = line.split()
        return "\n".join(self.words[word](rest) or [SAID_BY_ALL])

    def _node(self, text: str) -> Node:
        return self.world.nodes[text]

    def _options(self, words: list[str]) -> list[str]:
        numbers = {name: int(number) for name, number in (word.split("=") for word in words)}
        self.world.options = msgspec.structs.replace(self.world.options, **numbers)
        return []

    def _voters(self, words: list[str]) -> list[str]:
        learners = [word.strip("()") for word in words if word.startswith("(")]
        voters = [word for word in words if not word.startswith("(")]
        return self.world.create([*voters, *learners], voters, learners)

    def _joining(self, words: list[str]) -> list[str]:
        return self.world.create(words, [], [])

    def _log(self, words: list[str]) -> list[str]:
        term = int(words[1].removeprefix("term="))
        return self.world.preset(words[0], term, [int(word) for word in words[2:]])

    def _tick(self, text: str, duration_ms: int) -> list[str]:
        return self.world.tick(self._node(text), duration_ms)

    def _elect(self, words: list[str]) -> list[str]:
        self._tick(words[0], 2 * self.world.options.election_timeout_ms)
        self.world.stabilize(list(self.world.nodes))
        return [self._status(words)[0].splitlines()[0]]

    def _propose(self, words: list[str]) -> list[str]:
        data = " ".join(words[1:]).encode()
        return self.world.request(self._node(words[0]), inputs.Propose, data=data, term=Term(0))

    def _ask(self, text: str, make: type) -> list[str]:
        return self.world.request(self._node(text), make)

    def _transfer(self, words: list[str]) -> list[str]:
        to = member_id(words[1]) if len(words) > 1 else None
        return self.world.request(self._node(words[0]), inputs.Transfer, to=to)

    def _learn(self, words: list[str]) -> list[str]:
        learner = member(words[1], is_learner=True)
        return self.world.request(self._node(words[0]), inputs.AddLearner, member=learner)

    def _member_change(self, words: list[str], make: type) -> list[str]:
        return self.world.request(self._node(words[0]), make, member_id=member_id(words[1]))

    def _drop(self, words: list[str]) -> list[str]:
        def is_dropped(way: str) -> bool:
            sender, _, receiver = way.partition("→")
            return any(word in (way, receiver) or word == f"{sender}→" for word in words)

        lines, kept = [], []
        for one in self.world.network:
            way = f"{notation.name(one.sender)}→{notation.name(one.receiver)}"
            if is_dropped(way):
                lines.append(f"lost: {notation.message(one)}")
            else:
                kept.append(one)
        self.world.network = kept
        return lines

    def _hold(self, words: list[str]) -> list[str]:
        for word in words:
            self._node(word).is_held = True
        return []

    def _flush(self, words: list[str]) -> list[str]:
        return [line for word in words for line in self.world.flush(self._node(word))]

    def _crash(self, words: list[str]) -> list[str]:
        for word in words:
            node = self._node(word)
            node.is_down, node.waiting = True, []
        return []

    def _restart(self, words: list[str]) -> list[str]:
        lines = [line for word in words for line in self.world.restart(word)]
        return lines + self._status(words)

    def _corrupt(self, words: list[str]) -> list[str]:
        return self.world.corrupt(words[0], int(words[1])) + self._status(words[:1])

    def _died(self, words: list[str]) -> list[str]:
        node = self._node(words[0])
        return self.world.perform(node, node.core.give(inputs.PeerDied(node_id=int(words[1]))))

    def _status(self, words: list[str]) -> list[str]:
        return [
            "(down)" if node.is_down else notation.status(node.core.describe())
            for text, node in self.world.nodes.items()
            if not words or text in words
        ]

    def _entries(self, words: list[str]) -> list[str]:
        durable = self._node(words[0]).durable
        start = "" if durable.snapshot is None else f"{notation.snapshot(durable.snapshot.id)} | "
        return [start + " ".join(f"{one.index}@{one.term}" for one in durable.entries)]
