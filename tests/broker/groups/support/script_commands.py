"""The words of a golden script, each a function from words to the lines to show.

topics a=3 b=2          all topics that there are; their ids are their names
settings session=1000   session, interval, retention, in milliseconds
slow | fast             appends wait for `commit`, or are committed at once
join m1 a,b             [as=instance] [over] [pattern=x.*] [by=range]: a first heartbeat
beat m1                 [gives up]: the next one; `lost`: its answer does not arrive
late m1 | arrive m1     a heartbeat is made now, and arrives then
again m1                it stops reading everything and joins again
leave m1 | away m1
commit m1 a0=5          [at=epoch] offsets of a member; `-`: of a reader that is none
fetch | describe | list | records
alter a0=5 [dry] | forget a0 [dry] | delete [dry] | evict m1
wait 1000               time passes
committed [n]           appends in flight are committed
failover [n]            of the appends in flight the first n survive
"""

from collections.abc import Callable

from tests.broker.groups.support import notation
from tests.broker.groups.support.house import House, key, topic
from tidelog.broker.groups.state.messages import (
    AlterOffsets,
    AnyRequest,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    GroupSettings,
    ListGroups,
    RemoveMembers,
    TopicsChanged,
)
from tidelog.chaos.workloads.plain_member import PlainMember
from tidelog.wire.calls.groups import (
    Assignor,
    CommitOffsets,
    FetchOffsets,
    Heartbeat,
    HeartbeatAnswer,
    OffsetToCommit,
    Subscription,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey

GROUP = "g"


class Script:
    """One script's coordinator, members and words."""

    def __init__(self) -> None:
        self.house = House()
        self.members: dict[str, PlainMember] = {}
        self.late: dict[str, Heartbeat] = {}
        self.shown_appends = 0
        self.waiting: dict[int, tuple[str, Heartbeat | None]] = {}
        self.words: dict[str, Callable[[list[str]], None]] = {
            "topics": self._topics,
            "settings": self._settings,
            "slow": lambda _: setattr(self.house, "is_auto", False),
            "fast": lambda _: setattr(self.house, "is_auto", True),
            "join": self._join,
            "beat": self._beat,
            "late": self._late,
            "arrive": self._arrive,
            "again": self._again,
            "leave": self._leave,
            "away": self._leave,
            "commit": self._commit,
            "fetch": lambda _: self._send("", FetchOffsets(group=GROUP)),
            "describe": lambda _: self._send("", DescribeGroup(group=GROUP)),
            "list": lambda _: self._send("", ListGroups()),
            "alter": self._alter,
            "forget": self._forget,
            "delete": lambda words: self._send(
                "", DeleteGroup(group=GROUP, validate_only="dry" in words)
            ),
            "evict": lambda words: self._send(
                "", RemoveMembers(group=GROUP, member_ids=tuple(words))
            ),
            "wait": lambda words: self.house.pass_time(int(words[0])),
            "committed": lambda words: self.house.commit(
                int(words[0]) if words else len(self.house.ends)
            ),
            "failover": lambda words: self.house.fail_over(int(words[0]) if words else 0),
            "records": lambda _: self.lines.extend(notation.records(self.house.records())),
        }
        self.lines: list[str] = []

    def run(self, command: str) -> str:
        """What the command shows: appends, then answers."""
        word, *rest = command.split()
        self.lines = []
        self.words[word](rest)
        new = self.house.append_count - self.shown_appends
        self.shown_appends = self.house.append_count
        shown = [f"append {new}"] if new else []
        shown += self._answers() + self.lines
        return "\n".join(shown or ["ok"])

    def _answers(self) -> list[str]:
        lines = []
        for request_id in [each for each in self.waiting if each in self.house.answers]:
            name, sent = self.waiting.pop(request_id)
            answer = self.house.answers.pop(request_id)
            member = self.members.get(name)
            if sent is not None and member is not None:
                if isinstance(answer, HeartbeatAnswer):
                    member.on_answer(sent, answer, self.house.now_ms)
                elif isinstance(answer, TidelogError):
                    member.on_refusal(answer.code)
            lines += notation.answer(name, answer)
        return lines

    def _send(self, name: str, request: AnyRequest, sent: Heartbeat | None = None) -> None:
        self.waiting[self.house.send(request)] = (name, sent)

    def _topics(self, words: list[str]) -> None:
        counts = dict(word.split("=", 1) for word in words)
        self.house.topics = {name: topic(name, int(count)) for name, count in counts.items()}
        house = self.house
        topics = tuple(house.topics[name] for name in sorted(house.topics))
        house.step(TopicsChanged(topics=topics, now_ms=house.now_ms, wall_ms=house.wall_ms))

    def _settings(self, words: list[str]) -> None:
        given = {word.split("=", 1)[0]: int(word.split("=", 1)[1]) for word in words}
        self.house = House(
            *self.house.topics.values(),
            settings=GroupSettings(
                session_timeout_ms=given.get("session", 45_000),
                session_timeout_ms_min=1,
                heartbeat_interval_ms=given.get("interval", 3_000),
                offsets_retention_ms=given.get("retention", 604_800_000),
            ),
        )

    def _join(self, words: list[str]) -> None:
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words[1:] if "=" not in word]
        subscription = Subscription(
            topics=tuple(names[0].split(",")) if names else (),
            topic_pattern=options.get("pattern", ""),
            assignor=Assignor[options.get("by", "unspecified").upper()],
        )
        member = PlainMember(
            GROUP,
            words[0],
            subscription,
            instance_id=options.get("as", ""),
            session_timeout_ms=self.house.settings.session_timeout_ms,
            rebalance_timeout_ms=300_000,
            takes_over="over" in words,
        )
        self.members[words[0]] = member
        self._beat([words[0]])

    def _beat(self, words: list[str]) -> None:
        member = self.members[words[0]]
        if "gives" in words:
            member.give_up()
        heartbeat = member.heartbeat(self.house.now_ms)
        if "lost" in words:
            self.house.answers.pop(self.house.send(heartbeat), None)
            member.on_no_answer()
        else:
            self._send(words[0], heartbeat, heartbeat)

    def _late(self, words: list[str]) -> None:
        self.late[words[0]] = self.members[words[0]].heartbeat(self.house.now_ms)
        self.members[words[0]].on_no_answer()

    def _arrive(self, words: list[str]) -> None:
        self._send(f"late {words[0]}", self.late.pop(words[0]))

    def _again(self, words: list[str]) -> None:
        self.members[words[0]].stop_reading()
        self._beat(words)

    def _leave(self, words: list[str]) -> None:
        # The command's own word says how; a departure is a heartbeat as well.
        member = self.members[words[0]]
        self._send(words[0], member.departure(is_for_a_while=bool(member.instance_id)))

    def _commit(self, words: list[str]) -> None:
        options = dict(word.split("=", 1) for word in words[1:])
        member = self.members.get(words[0])
        epoch = options.pop("at", str(member.epoch if member else -1))
        self._send(
            words[0],
            CommitOffsets(
                group=GROUP,
                member_id=words[0] if words[0] != "-" else "",
                member_epoch=int(epoch),
                offsets=_offsets(options),
            ),
        )

    def _alter(self, words: list[str]) -> None:
        options = dict(word.split("=", 1) for word in words if "=" in word)
        self._send(
            "",
            AlterOffsets(group=GROUP, offsets=_offsets(options), validate_only="dry" in words),
        )

    def _forget(self, words: list[str]) -> None:
        keys = tuple(_key(word) for word in words if word != "dry")
        self._send("", DeleteOffsets(group=GROUP, keys=keys, validate_only="dry" in words))


def _key(text: str) -> PartitionKey:
    return key(text.rstrip("0123456789"), int(text.lstrip("abcdefghijklmnopqrstuvwxyz")))


def _offsets(options: dict[str, str]) -> tuple[OffsetToCommit, ...]:
    return tuple(
        OffsetToCommit(
            key=_key(name), committed_offset=Offset(int(offset)), leader_epoch=LeaderEpoch(0)
        )
        for name, offset in options.items()
    )
