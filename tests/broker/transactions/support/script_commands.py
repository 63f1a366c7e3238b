"""The words of a golden script, each a function from words to the lines to show.

settings timeout=1000 max=60000 expire=5000     in milliseconds; begins again from nothing
known t 7@32766         the log holds this id from before; begins again from there
topic a 3 | delete b    topics, whose ids are their names; a has 3 partitions and b has 2
slow | fast             appends wait for `committed`, or are committed at once
down | up               leaders do not answer, or take every marker at once
init t [expect=1@0] [timeout=500]
add t a0 a1 [as=1@0] [verify]                    a leader asks
commit t | abort t [as=1@0]
prepare t [as=1@0] [by=alice]
decide t commit token=1@0
operator t [dry]        an operator aborts
describe t | list | records | notes
wait 1000               time passes
committed [n]           appends in flight are committed
failover [n]            of the appends in flight the first n survive
answer [a0 b1]          leaders that were down take the marker and say so; all of them, or these
refuse CODE [a0]        they do not take it
lose [a0]               they take it, and the answer is lost
ids none | ids 5        no producer ids are granted from now on; these are granted

Without `as` a request has the identity that the id was answered last.
"""

from collections.abc import Callable

import msgspec

from tests.broker.transactions.support import notation
from tests.broker.transactions.support.house import House, born, identity, key
from tests.broker.transactions.support.leaders import refusal
from tidelog.broker.transactions.state.answers import EndAnswer, Identity, InitAnswer
from tidelog.broker.transactions.state.messages import (
    AbortTransaction,
    AddPartitions,
    DecidePrepared,
    DescribeTransaction,
    EndTransaction,
    InitTransactionalProducer,
    ListTransactions,
    PrepareTransaction,
    TransactionSettings,
)
from tidelog.broker.transactions.state.states import Decision
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey


class Script:
    """One script's coordinator, producers and words."""

    def __init__(self) -> None:
        self.house = House()
        self.identities: dict[str, Identity] = {}
        self.shown_appends = 0
        self.waiting: dict[int, str] = {}
        self.lines: list[str] = []
        self.words: dict[str, Callable[[list[str]], None]] = {
            "settings": self._settings,
            "known": self._known,
            "topic": lambda words: self.house.set_topic(words[0], int(words[1])),
            "delete": lambda words: self.house.delete_topic(words[0]),
            "slow": lambda _: setattr(self.house, "is_auto", False),
            "fast": lambda _: setattr(self.house, "is_auto", True),
            "down": lambda _: setattr(self.house, "are_leaders_up", False),
            "up": lambda _: setattr(self.house, "are_leaders_up", True),
            "init": self._init,
            "add": self._add,
            "commit": lambda words: self._end(words, Decision.COMMIT),
            "abort": lambda words: self._end(words, Decision.ABORT),
            "prepare": self._prepare,
            "decide": self._decide,
            "operator": self._operator,
            "describe": lambda words: self._send(
                words[0], DescribeTransaction(transactional_id=words[0])
            ),
            "list": lambda _: self._send("list", ListTransactions()),
            "records": lambda _: self.lines.extend(notation.records(self.house.log)),
            "notes": self._notes,
            "wait": lambda words: self.house.pass_time(int(words[0])),
            "committed": lambda words: self.house.commit(
                int(words[0]) if words else len(self.house.ends)
            ),
            "failover": lambda words: self.house.fail_over(int(words[0]) if words else 0),
            "answer": lambda words: self._leaders(words, None, is_taken=True),
            "refuse": lambda words: self._leaders(
                words[1:], refusal(ErrorCode[words[0]]), is_taken=False
            ),
            "lose": lambda words: self._leaders(
                words, refusal(ErrorCode.DEADLINE_EXCEEDED), is_taken=True
            ),
            "ids": self._ids,
        }

    def run(self, command: str) -> str:
        """What the command shows: appends, markers, answers."""
        word, *rest = command.split()
        self.lines = []
        self.words[word](rest)
        new = self.house.append_count - self.shown_appends
        self.shown_appends = self.house.append_count
        shown = [f"append {new}"] if new else []
        shown += [notation.marker(each) for each in self.house.sent]
        self.house.sent = []
        shown += self._answers() + self.lines
        if self.house.is_deposed:
            shown.append("reload")
        return "\n".join(shown or ["ok"])

    def _answers(self) -> list[str]:
        lines = []
        for request_id in [each for each in self.waiting if each in self.house.answers]:
            name = self.waiting.pop(request_id)
            answer = self.house.answers.pop(request_id)
            if isinstance(answer, InitAnswer | EndAnswer):
                self.identities[name] = answer.identity
            lines += notation.answer(name, answer)
        return lines

    def _send(self, name: str, message: msgspec.Struct) -> None:
        self.waiting[self.house.send(message)] = name

    def _settings(self, words: list[str]) -> None:
        given = {name: int(value) for name, value in _options(words).items()}
        self.house = House(
            settings=TransactionSettings(
                timeout_ms_default=given.get("timeout", 60_000),
                timeout_ms_max=given.get("max", 900_000),
                id_expiration_ms=given.get("expire", 604_800_000),
            )
        )
        self.shown_appends = 0

    def _known(self, words: list[str]) -> None:
        known = _identity(words[1])
        house = self.house
        self.house = House(
            settings=house.settings,
            log=(*house.log, born(words[0], known, house.wall_ms)),
            first_id=house.next_producer_id,
        )
        self.house.sent = []
        self.identities[words[0]] = known
        self.shown_appends = 0

    def _as(self, words: list[str]) -> Identity:
        given = _options(words).get("as")
        return _identity(given) if given else self.identities.get(words[0], identity(1, 0))

    def _init(self, words: list[str]) -> None:
        options = _options(words)
        self._send(
            words[0],
            InitTransactionalProducer(
                transactional_id=words[0],
                transaction_timeout_ms=int(options.get("timeout", "0")),
                expected=_identity(options["expect"]) if "expect" in options else None,
            ),
        )

    def _add(self, words: list[str]) -> None:
        self._send(
            words[0],
            AddPartitions(
                transactional_id=words[0],
                identity=self._as(words),
                keys=_keys(words[1:]),
                verify_only="verify" in words,
            ),
        )

    def _end(self, words: list[str], decision: Decision) -> None:
        self._send(
            words[0],
            EndTransaction(transactional_id=words[0], identity=self._as(words), decision=decision),
        )

    def _prepare(self, words: list[str]) -> None:
        self._send(
            words[0],
            PrepareTransaction(
                transactional_id=words[0],
                identity=self._as(words),
                principal=_options(words).get("by", "alice"),
            ),
        )

    def _decide(self, words: list[str]) -> None:
        self._send(
            words[0],
            DecidePrepared(
                transactional_id=words[0],
                identity=_identity(_options(words)["token"]),
                decision=Decision[words[1].upper()],
            ),
        )

    def _operator(self, words: list[str]) -> None:
        self._send(
            words[0], AbortTransaction(transactional_id=words[0], validate_only="dry" in words)
        )

    def _notes(self, _: list[str]) -> None:
        self.lines += [
            f"{each.transactional_id} {each.kind.value}" for each in self.house.core.notes.take()
        ]

    def _leaders(self, words: list[str], error: TidelogError | None, *, is_taken: bool) -> None:
        named = _keys(words)
        for send_id in list(self.house.sends):
            if send_id not in self.house.sends:
                continue
            keys = self.house.sends[send_id].keys
            chosen = tuple(each for each in keys if not named or each in named)
            if chosen:
                self.house.answer_markers(send_id, chosen, error, is_taken=is_taken)

    def _ids(self, words: list[str]) -> None:
        self.house.is_granting = False
        if words[0] != "none":
            self.house.grant(int(words[0]))


def _options(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words if "=" in word)


def _identity(text: str) -> Identity:
    producer_id, epoch = text.split("@")
    return identity(int(producer_id), int(epoch))


def _keys(words: list[str]) -> tuple[PartitionKey, ...]:
    return tuple(
        key(word.rstrip("0123456789"), int(word.lstrip("abcdefghijklmnopqrstuvwxyz_")))
        for word in words
        if "=" not in word and word != "verify"
    )
