"""Staging partitions in memory: writers that stage beside each other, and a publisher's words."""

from collections.abc import Sequence

from tidelog.broker.staged.footer import Footer, verified_footer
from tidelog.broker.staged.judging import PublishVerdict, SinkState, judge_publish
from tidelog.broker.staged.manifest import Manifest, base_sequences, manifest_of
from tidelog.broker.staged.staging import (
    Stage,
    StagedRecord,
    batch_record,
    batches_of,
    footer_record,
    token_of,
)
from tidelog.broker.staged.token import StageId, Token, decode_token, encode_token
from tidelog.wire.batch import encode_batch, read_header
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

TOPIC = TopicId(b"t" * 16)


def target(number: int) -> PartitionKey:
    return PartitionKey(TOPIC, PartitionId(number))


def batch(values: Sequence[bytes]) -> bytes:
    return encode_batch([(0, None, value, ()) for value in values])


class Staging:
    """The partitions of `__staging`."""

    def __init__(self) -> None:
        self.records: dict[int, list[StagedRecord]] = {}

    def append(self, partition: int, record: tuple[bytes, bytes]) -> int:
        log = self.records.setdefault(partition, [])
        log.append((len(log), *record))
        return len(log) - 1

    def footer(self, token: Token) -> Footer:
        """As a coordinator reads it."""
        log = self.records.get(token.staging_partition, [])
        data = log[token.footer_offset][2] if token.footer_offset < len(log) else b""
        return verified_footer(data, token, tried="publish")

    def pull(self, manifest: Manifest) -> dict[PartitionKey, list[tuple[int, bytes]]]:
        """Base sequence and bytes of each batch, as its target's leader appends it."""
        found: dict[PartitionKey, list[tuple[int, bytes]]] = {}
        for portion in manifest.portions(ranges_max=2):
            batches = [
                each
                for range_ in portion.ranges
                for each in batches_of(
                    self.records[range_.staging_partition],
                    range_.stage_id,
                    range_.target,
                    tried="apply",
                )
            ]
            counts = [read_header(each).record_count for each in batches]
            sequences = base_sequences(portion.first_sequence, counts)
            found.setdefault(portion.key, []).extend(zip(sequences, batches, strict=True))
        return found


class Writer:
    """One stage, batch by batch."""

    def __init__(
        self, staging: Staging, name: str, partition: int, batch_id: int, sink: str = "s"
    ) -> None:
        self.staging, self.partition = staging, partition
        self.stage_id = StageId(name.encode().ljust(16, b"."))
        self.stage = Stage(self.stage_id, sink, batch_id, 0)
        self.sent: list[tuple[PartitionKey, bytes]] = []
        self.token = b""

    def send(self, key: PartitionKey, values: Sequence[bytes]) -> None:
        data = batch(values)
        header = read_header(data)
        self.stage.check(key, header)
        offset = self.staging.append(self.partition, batch_record(self.stage_id, key, data))
        self.stage.add(key, header, data, offset)
        self.sent.append((key, data))

    def end(self) -> bytes:
        records = sum(read_header(data).record_count for _, data in self.sent)
        footer = self.stage.finish(len(self.sent), records)
        offset = self.staging.append(self.partition, footer_record(footer))
        self.token = encode_token(token_of(footer, PartitionId(self.partition), offset))
        return self.token


class PublishScript:
    """`stage NAME PARTITION BATCH 0:a,b 1:c`, `publish BATCH NAMES`, `lose NAME`, `sink BATCH`."""

    def __init__(self) -> None:
        self.staging = Staging()
        self.writers: dict[str, Writer] = {}
        self.sink: SinkState | None = None

    def run(self, command: str) -> str:
        word, *rest = command.split()
        try:
            match word:
                case "stage":
                    return self._stage(*rest)
                case "publish":
                    return self._publish(*rest)
                case "lose":
                    writer = self.writers[rest[0]]
                    log = self.staging.records[writer.partition]
                    log[:] = [(each[0], b"", b"") for each in log]
                    return "gone"
                case _:
                    assert word == "sink", command
                    self.sink = SinkState(int(rest[0]), "w")
                    return f"batch {rest[0]} was the last one"
        except TidelogError as error:
            return f"{error.code.name}: {error.happened}"

    def _stage(self, name: str, partition: str, batch_id: str, *parts: str) -> str:
        writer = self.writers[name] = Writer(self.staging, name, int(partition), int(batch_id))
        for part in parts:
            number, _, values = part.partition(":")
            writer.send(target(int(number)), [each.encode() for each in values.split(",")])
        writer.end()
        footer = self.staging.footer(decode_token(writer.token, tried="publish"))
        return "\n".join(
            f"t-{each.partition}: {each.batch_count} batches of {each.record_count} records, "
            f"offsets {each.first_offset} to {each.last_offset}"
            for each in footer.targets
        )

    def _publish(self, batch_id: str, *words: str) -> str:
        verdict = judge_publish(
            "s",
            int(batch_id),
            next((word.removeprefix("write=") for word in words if "=" in word), "w"),
            self.sink,
            allow_new_sink_state="new" in words,
        )
        if verdict is PublishVerdict.PUBLISHED_BEFORE:
            return "published before"
        names = [word for word in words if "=" not in word and word != "new"]
        tokens = [decode_token(self.writers[name].token, tried="publish") for name in names]
        staged = [(token, self.staging.footer(token)) for token in tokens]
        found = self.staging.pull(manifest_of("s", int(batch_id), staged))
        self.sink = SinkState(int(batch_id), "w")
        lines = []
        for key, batches in found.items():
            parts = [f"{sequence}+{read_header(data).record_count}" for sequence, data in batches]
            lines.append(f"t-{key.partition}: {' '.join(parts)}")
        return "\n".join(lines) or "nothing but the batch id"
