"""Drives a group member's core by scripts: `> command` lines, and below each what the core did."""

from collections.abc import Callable

from tests.client.support.engine_world import MS, TOPIC_ID, failure
from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.group.group import GroupCore
from tidelog.client.engine.group.invariants import check_group
from tidelog.client.engine.group.messages import (
    Assign,
    AssignedPartition,
    CommitAnswered,
    CommitDone,
    CommittedOffset,
    CommitWanted,
    CoordinatorFailed,
    CoordinatorFound,
    FindCoordinator,
    GroupEffect,
    GroupMessage,
    GroupNews,
    GroupPartition,
    HasLeft,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatAnswered,
    LeaveWanted,
    LookupAnswered,
    LookupWanted,
    Lost,
    Note,
    OffsetsFound,
    OffsetToCommit,
    Reconciled,
    Revoke,
    SendCommit,
    SendHeartbeat,
    SendLookup,
    Subscribed,
    Tell,
)
from tidelog.client.engine.group.settings import GroupSettings
from tidelog.client.types.records import TopicPartition
from tidelog.wire.calls.groups import Subscription
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset

Fields = dict[str, str]


def name_of(word: str) -> TopicPartition:
    topic, _, number = word.rpartition("-")
    return TopicPartition(topic, int(number))


def partition(word: str) -> GroupPartition:
    return GroupPartition(topic_partition=name_of(word), topic_id=TOPIC_ID)


def assigned(word: str) -> AssignedPartition:
    name, _, epoch = word.partition("@")
    return AssignedPartition(
        topic_partition=name_of(name),
        topic_id=TOPIC_ID,
        partition_assignment_epoch=int(epoch or 1),
    )


def names(partitions: tuple[GroupPartition, ...]) -> str:
    found = [
        f"{each.topic_partition.topic}-{each.topic_partition.partition}" for each in partitions
    ]
    return " ".join(found) or "nothing"


def effect_text(effect: GroupEffect) -> str:
    """One line."""
    match effect:
        case FindCoordinator():
            return "find the coordinator"
        case SendHeartbeat():
            return f"heartbeat {effect.number} to {effect.address}: {_heartbeat(effect.heartbeat)}"
        case SendCommit():
            who = effect.member_id or "nobody"
            offsets = " ".join(
                f"{names((each,))}={each.committed_offset}" for each in effect.offsets
            )
            return f"commit to {effect.address} as {who}@{effect.member_epoch}: {offsets}"
        case SendLookup():
            who = effect.member_id or "nobody"
            stable = " stable" if effect.require_stable else ""
            return (
                f"look up at {effect.address} as {who}@{effect.member_epoch}{stable}: "
                f"{names(effect.partitions)}"
            )
        case Tell():
            return f"tell: {_news(effect.news)}"
        case Note():
            return f"log {effect.severity.value}: {effect.text}"


def _heartbeat(heartbeat: Heartbeat) -> str:
    parts = [f"epoch {heartbeat.member_epoch}"]
    if heartbeat.subscription is not None:
        wish = [*heartbeat.subscription.topics]
        if heartbeat.subscription.topic_pattern:
            wish.append(f"/{heartbeat.subscription.topic_pattern}/")
        parts.append(f"wants {' '.join(wish)}")
    if heartbeat.owned is not None:
        parts.append(f"owns {names(heartbeat.owned)}")
    return ", ".join(parts)


def _news(news: GroupNews) -> str:
    match news:
        case Revoke():
            return f"{news.number} revoke {names(news.partitions)}"
        case Assign():
            return f"{news.number} assign {names(news.partitions)}"
        case Lost():
            refused = ", refused" if news.is_refused else ""
            return f"{news.number} lost by {news.error.code.name}{refused}"
        case CommitDone():
            failed = " ".join(
                f"{name.topic}-{name.partition}={error.code.name}" for name, error in news.failures
            )
            return f"commit {news.number} done" + (f", but {failed}" if failed else "")
        case OffsetsFound():
            found = " ".join(f"{names((each,))}={each.committed_offset}" for each in news.offsets)
            failed = f" failed by {news.error.code.name}" if news.error else ""
            more = "" if news.is_last else ", more to come"
            return f"lookup {news.number}:{failed} {found}{more}".rstrip()
        case HasLeft():
            return "has left"


class GroupScript:
    """`static` or `session 10000` first, for other settings."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self._settings = GroupSettings(group="g", member_id="m")
        self.core = GroupCore(self._settings, Backoff(initial_ms=100, max_ms=1_000))
        self.last: dict[type, GroupEffect] = {}
        self._commands: dict[str, Callable[[list[str], Fields], GroupMessage]] = {
            "subscribe": self._subscribe,
            "unsubscribe": lambda _, __: Subscribed(subscription=Subscription()),
            "coordinator": lambda words, _: CoordinatorFound(address=words[0]),
            "no-coordinator": lambda words, _: CoordinatorFailed(error=_error(words[0])),
            "answer": self._answer,
            "done": lambda words, _: Reconciled(number=int(words[0])),
            "commit": self._commit,
            "committed": self._committed,
            "lookup": self._lookup,
            "found": self._found,
            "leave": lambda words, _: LeaveWanted(deadline_ns=self._in(words[0])),
        }

    def run(self, command: str) -> str:
        """What one command makes the core do, as text."""
        words = [word for word in command.split() if "=" not in word]
        fields = dict(word.split("=", 1) for word in command.split() if "=" in word)
        match words[0]:
            case "static":
                settings = GroupSettings(group="g", member_id="m", is_static=True)
                self.core = GroupCore(settings, Backoff(initial_ms=100, max_ms=1_000))
                return "nothing"
            case "state":
                return self._state()
            case "polled" | "polls":
                self.core.note_poll(self.now_ns if words[0] == "polled" else None)
                effects = self.core.tick(self.now_ns)
            case "wait":
                self.now_ns += int(words[1]) * MS
                effects = self.core.tick(self.now_ns)
            case name:
                effects = self.core.step(self._commands[name](words[1:], fields), self.now_ns)
        check_group(self.core)
        self.last.update((type(effect), effect) for effect in effects)
        return "\n".join(effect_text(effect) for effect in effects) or "nothing"

    def _in(self, word: str) -> int:
        return self.now_ns + int(word) * MS

    def _subscribe(self, words: list[str], fields: Fields) -> GroupMessage:
        wish = Subscription(topics=tuple(words), topic_pattern=fields.get("pattern", ""))
        return Subscribed(subscription=wish)

    def _answer(self, words: list[str], fields: Fields) -> GroupMessage:
        """`answer epoch=1 assign=t-0@1,t-1@1 idle` or `answer error=CODE`, to the last one."""
        sent = self.last[SendHeartbeat]
        assert isinstance(sent, SendHeartbeat)
        given = fields.get("assign")
        answer = HeartbeatAnswer(
            member_epoch=int(fields.get("epoch", "0")),
            heartbeat_interval_ms=int(fields.get("interval", "3000")),
            session_timeout_ms=45_000,
            assignment=None
            if given is None
            else tuple(assigned(word) for word in given.split(",") if word),
            is_idle="idle" in words,
            error=_error(fields["error"]) if "error" in fields else None,
        )
        return HeartbeatAnswered(number=sent.number, answer=answer)

    def _commit(self, words: list[str], fields: Fields) -> GroupMessage:
        """`commit NUMBER t-0=5 … within=1000`"""
        within = fields.pop("within", "60000")
        offsets = tuple(
            OffsetToCommit(
                topic_partition=name_of(word),
                topic_id=TOPIC_ID,
                committed_offset=Offset(int(offset)),
            )
            for word, offset in fields.items()
        )
        return CommitWanted(number=int(words[0]), offsets=offsets, deadline_ns=self._in(within))

    def _committed(self, _: list[str], fields: Fields) -> GroupMessage:
        """`committed`, `committed t-0=CODE` or `committed error=CODE`, of the last request."""
        sent = self.last[SendCommit]
        assert isinstance(sent, SendCommit)
        if "error" in fields:
            return CommitAnswered(number=sent.number, error=_error(fields["error"]))
        codes = [fields.get(names((each,))) for each in sent.offsets]
        results = tuple(None if code is None else _error(code) for code in codes)
        throttle_ms = int(fields.get("throttle", "0"))
        return CommitAnswered(number=sent.number, results=results, throttle_ms=throttle_ms)

    def _lookup(self, words: list[str], fields: Fields) -> GroupMessage:
        """`lookup NUMBER t-0 … [start] [within=1000]`"""
        return LookupWanted(
            number=int(words[0]),
            partitions=tuple(partition(word) for word in words[1:] if word != "start"),
            deadline_ns=self._in(fields["within"]) if "within" in fields else None,
            is_start="start" in words,
        )

    def _found(self, _: list[str], fields: Fields) -> GroupMessage:
        """`found t-0=5 t-1=CODE` or `found error=CODE`; what is not named has no offset."""
        sent = self.last[SendLookup]
        assert isinstance(sent, SendLookup)
        if "error" in fields:
            return LookupAnswered(number=sent.number, error=_error(fields["error"]))
        offsets = []
        for each in sent.partitions:
            told = fields.get(names((each,)), "-1")
            is_number = told.lstrip("-").isdigit()
            offsets.append(
                CommittedOffset(
                    topic_partition=each.topic_partition,
                    topic_id=each.topic_id,
                    committed_offset=Offset(int(told) if is_number else -1),
                    error=None if is_number else _error(told),
                )
            )
        return LookupAnswered(number=sent.number, offsets=tuple(offsets))

    def _state(self) -> str:
        member = self.core.membership
        lease = member.lease_until_ns
        left = "no lease" if lease is None else f"lease for {(lease - self.now_ns) // MS} ms"
        held, read = (names(tuple(each.values())) for each in (member.held, member.reading))
        return f"{member.stage.value}@{member.member_epoch}, holds {held}, reads {read}, {left}"


def _error(word: str) -> TidelogError:
    return failure(ErrorCode[word])
