"""Staged publish against the plainest model: each writer's batches, in the order of the tokens."""

from random import Random

import msgspec
import pytest

from tests.broker.staged.support import Staging, Writer, batch, target
from tidelog.broker.staged import limits
from tidelog.broker.staged.footer import Footer, encode_footer, verified_footer
from tidelog.broker.staged.manifest import base_sequences, manifest_of
from tidelog.broker.staged.staging import Stage, batches_of
from tidelog.broker.staged.token import StageId, Token, decode_token, encode_token
from tidelog.wire.batch import encode_batch, read_header
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey


def staged(random: Random, staging: Staging, count: int) -> list[Writer]:
    """Writers beside each other in few staging partitions, some of which never end."""
    writers = [Writer(staging, f"w{number}", random.randrange(2), 0) for number in range(count)]
    idle = [Writer(staging, f"idle{number}", random.randrange(2), 0) for number in range(2)]
    for _ in range(count * 6):
        writer = random.choice([*writers, *idle])
        values = [b"%d" % random.randrange(1000) for _ in range(random.randrange(1, 4))]
        writer.send(target(random.randrange(3)), values)
    for writer in random.sample(writers, count):
        writer.end()
    return writers


def parsed(staging: Staging, writers: list[Writer]) -> list[tuple[Token, Footer]]:
    tokens = [decode_token(each.token, tried="publish") for each in writers]
    return [(token, staging.footer(token)) for token in tokens]


@pytest.mark.parametrize("seed", range(40))
def test_each_target_receives_all_batches_in_the_order_of_tokens_and_dense_sequences(
    seed: int,
) -> None:
    random, staging = Random(seed), Staging()
    writers = staged(random, staging, 5)
    random.shuffle(writers)
    manifest = manifest_of("s", 0, parsed(staging, writers))
    found = staging.pull(manifest)
    wanted: dict[PartitionKey, list[bytes]] = {}
    for writer in writers:
        for key, data in writer.sent:
            wanted.setdefault(key, []).append(data)
    assert {key: [data for _, data in batches] for key, batches in found.items()} == wanted
    for batches in found.values():
        sequence = 0
        for base, data in batches:
            assert base == sequence
            sequence += read_header(data).record_count
    assert list(manifest.ranges) == sorted(wanted)
    assert manifest.size_bytes == sum(len(each) for part in wanted.values() for each in part)
    assert manifest_of("s", 0, parsed(staging, writers)) == manifest, "of nothing else it depends"


@pytest.mark.parametrize("seed", range(20))
def test_a_batch_that_is_not_there_any_more_is_never_left_out_in_silence(seed: int) -> None:
    random, staging = Random(seed), Staging()
    (writer,) = staged(random, staging, 1)
    if not writer.sent:
        return
    ((_, footer),) = parsed(staging, [writer])
    chosen = random.choice(footer.targets)
    log = staging.records[writer.partition]
    offsets = [
        number
        for number, (_, key, value) in enumerate(log)
        if bytes(writer.stage_id) in key
        and value[:20].endswith(chosen.partition.to_bytes(4, "big"))
    ]
    place = random.choice([each for each in offsets if each <= chosen.last_offset])
    offset, key, value = log[place]
    damaged = value[:-1] + bytes([value[-1] ^ 1])
    log[place] = random.choice([(offset, b"", b""), (offset, key, damaged)])
    with pytest.raises(TidelogError) as raised:
        list(batches_of(log, writer.stage_id, chosen, tried="apply"))
    assert raised.value.code is ErrorCode.STAGED_TOKEN_MISSING


@pytest.mark.parametrize("seed", range(20))
def test_a_token_comes_back_as_it_was_and_no_changed_byte_passes(seed: int) -> None:
    random = Random(seed)
    staging = Staging()
    (writer,) = staged(random, staging, 1)
    data = writer.token
    assert len(data) <= limits.TOKEN_BYTES_MAX
    assert encode_token(decode_token(data, tried="publish")) == data
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << random.randrange(8)
        with pytest.raises(TidelogError) as raised:
            decode_token(bytes(changed), tried="publish")
        code = raised.value.code
        assert code in (ErrorCode.INVALID_ARGUMENT, ErrorCode.UNSUPPORTED_VERSION)
    for cut in (b"", data[:-1], data + b"x", data * 10):
        with pytest.raises(TidelogError):
            decode_token(cut, tried="publish")


def test_a_footer_of_another_stage_at_the_same_place_counts_as_missing() -> None:
    staging = Staging()
    writer = Writer(staging, "w", 0, 0)
    writer.send(target(0), [b"x"])
    token = decode_token(writer.end(), tried="publish")
    footer = staging.footer(token)
    other = msgspec.structs.replace(footer, stage_id=StageId(b"o" * 16))
    with pytest.raises(TidelogError) as raised:
        verified_footer(encode_footer(other), token, tried="publish")
    assert raised.value.code is ErrorCode.STAGED_TOKEN_MISSING


def test_golden_bytes_of_token_and_footer() -> None:
    staging = Staging()
    writer = Writer(staging, "w", 3, 7)
    writer.send(target(1), [b"a", b"b"])
    token = writer.end()
    assert (
        token.hex() == "01772e2e2e2e2e2e2e2e2e2e2e2e2e2e2e000000030000000000000001f8fc177b9de5651f"
    )
    footer = encode_footer(staging.footer(decode_token(token, tried="publish")))
    assert footer.hex() == (
        "97a5737461676501c410772e2e2e2e2e2e2e2e2e2e2e2e2e2e2ea173079198c41074747474747474"
        "74747474747474747401000001024dce5b6bc68000"
    )


@pytest.mark.parametrize(
    "data",
    [
        encode_batch([(0, None, b"x", ())], producer_id=5, producer_epoch=0, base_sequence=0),
        encode_batch(
            [(0, None, b"x", ())],
            producer_id=5,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        ),
    ],
)
def test_a_batch_of_a_producer_is_not_staged(data: bytes) -> None:
    stage = Stage(StageId(bytes(16)), "s", 0, 0)
    with pytest.raises(TidelogError) as raised:
        stage.check(target(0), read_header(data))
    assert raised.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize("told", [(1, 1), (2, 2), (0, 0), (1, 3)])
def test_a_writer_that_counted_otherwise_stages_nothing(told: tuple[int, int]) -> None:
    stage = Stage(StageId(bytes(16)), "s", 0, 0)
    data = batch([b"a", b"b"])
    stage.add(target(0), read_header(data), data, 0)
    with pytest.raises(TidelogError) as raised:
        stage.finish(*told)
    assert raised.value.code is ErrorCode.INVALID_ARGUMENT


def test_a_publish_of_more_than_readers_should_wait_for_is_refused() -> None:
    staging = Staging()
    writer = Writer(staging, "w", 0, 0)
    writer.send(target(0), [b"x"])
    writer.end()
    size = len(writer.sent[0][1])
    found = parsed(staging, [writer])
    assert manifest_of("s", 0, found, max_bytes=size).size_bytes == size
    with pytest.raises(TidelogError) as raised:
        manifest_of("s", 0, found, max_bytes=size - 1)
    assert raised.value.code is ErrorCode.BATCH_TOO_LARGE


def test_sequences_begin_again_behind_the_last_one() -> None:
    last = limits.SEQUENCES - 1
    assert list(base_sequences(last - 1, [1, 3, 2])) == [last - 1, last, 2]
