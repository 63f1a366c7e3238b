"""What stands in a checkpoint."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.offsets import (
    INITIAL,
    SourceOffset,
    TopicProgress,
    from_json,
    is_initial,
    to_json,
)
from tidelog.wire.errors import ErrorCode, TidelogError

ORDERS = TopicProgress(topic_id="ab" * 16, offsets={10: 7, 2: 5}, leader_epochs={10: 1, 2: 0})


def test_the_text_of_an_offset_is_the_same_whatever_order_it_was_built_in() -> None:
    turned = TopicProgress(topic_id="ab" * 16, offsets={2: 5, 10: 7}, leader_epochs={2: 0, 10: 1})
    first = SourceOffset(progress={"b": ORDERS, "a": ORDERS}, base={"b": ORDERS})
    second = SourceOffset(progress={"a": turned, "b": turned}, base={"b": turned})
    assert json.dumps(to_json(first)) == json.dumps(to_json(second))


def test_the_json_of_an_offset_is_what_checkpoints_hold() -> None:
    assert json.dumps(to_json(SourceOffset(progress={"orders": ORDERS}))) == (
        '{"topics": {"orders": {"epochs": {"2": 0, "10": 1}, "id": "'
        + "ab" * 16
        + '", "offsets": {"2": 5, "10": 7}}}}'
    )


def test_the_initial_offset_is_a_constant() -> None:
    assert is_initial(INITIAL)
    assert not is_initial(to_json(SourceOffset(progress={"orders": ORDERS})))


@pytest.mark.parametrize(
    "written",
    [{}, {"topics": {"t": {"offsets": {"x": 1}, "id": "a"}}}, {"topics": 3}, {"a": 1}, None, 3, []],
)
def test_an_offset_of_another_source_is_refused(written: Any) -> None:
    assert not is_initial(written)
    with pytest.raises(TidelogError) as caught:
        from_json(written)
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT


progresses = st.dictionaries(
    st.text(min_size=1, max_size=5),
    st.dictionaries(st.integers(0, 50), st.integers(0, 1 << 62), min_size=1, max_size=4).map(
        lambda offsets: TopicProgress(
            topic_id="cd" * 16, offsets=offsets, leader_epochs=dict.fromkeys(offsets, 3)
        )
    ),
    max_size=3,
)


@given(progresses, st.none() | progresses)
def test_an_offset_that_was_written_reads_the_same(
    progress: dict[str, TopicProgress], base: dict[str, TopicProgress] | None
) -> None:
    offset = SourceOffset(progress=progress, base=base)
    assert from_json(json.loads(json.dumps(to_json(offset)))) == offset
