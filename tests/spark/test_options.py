"""What may be asked of a read, and how a mistake is answered."""

import pytest

from tidelog.spark.options import Place, parse_options
from tidelog.wire.errors import ErrorCode, TidelogError


def test_a_batch_reads_from_earliest_to_latest_by_default() -> None:
    options = parse_options({"subscribe": "b, a"}, is_streaming=False)
    assert (options.starting, options.ending) == (Place(word="earliest"), Place(word="latest"))
    assert options.topics == ("a", "b")


def test_a_stream_begins_at_latest_by_default() -> None:
    options = parse_options({"subscribe": "a"}, is_streaming=True)
    assert options.starting == Place(word="latest")


def test_option_names_do_not_mind_their_case() -> None:
    options = parse_options({"SUBSCRIBE": "a", "startingoffsets": "earliest"}, is_streaming=True)
    assert options.starting == Place(word="earliest")


def test_both_names_of_the_bootstrap_address_mean_the_same() -> None:
    for name in ("bootstrap.servers", "kafka.bootstrap.servers"):
        assert parse_options({"subscribe": "a", name: "h:1"}, is_streaming=False).bootstrap == "h:1"


def test_the_bootstrap_address_comes_from_the_environment_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", "there:7")
    assert parse_options({"subscribe": "a"}, is_streaming=False).bootstrap == "there:7"


def test_offsets_are_given_for_each_partition() -> None:
    options = parse_options(
        {"subscribe": "a", "startingOffsets": '{"a":{"0":23,"1":-2}}'}, is_streaming=False
    )
    assert options.starting.offsets == {"a": {0: 23, 1: -2}}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"subscribe": "a", "startingOfsets": "latest"}, "did you mean startingOffsets"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "exactly one"),
        ({}, "exactly one"),
        ({}, "none of subscribe, subscribePattern and assign are given"),
        ({"assign": '{"a":[0],"a":[1]}'}, "names a twice"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":1,"0":2}}'}, "names 0 twice"),
        ({"subscribe": "a", "endingOffsets": '{"a":{"0":1},"a":{"1":2}}'}, "names a twice"),
        ({"assign": "a"}, '{"topic":[0,1]}'),
        ({"subscribePattern": "("}, "no regular expression"),
        ({"subscribe": "a", "startingOffsets": "{"}, "-2 earliest"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":-3}}'}, "-2, -1 or above"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "cannot end at earliest"),
        ({"subscribe": "a", "failOnDataLoss": "perhaps"}, "true or false"),
        ({"subscribe": "a", "minPartitions": "0"}, "below 1"),
        ({"subscribe": "a", "minPartitions": "many"}, "no whole number"),
        (
            {"subscribe": "a", "bootstrap.servers": "x:1", "kafka.bootstrap.servers": "y:1"},
            "give one of them",
        ),
    ],
)
def test_a_mistake_is_named_with_what_to_do(given: dict[str, str], named: str) -> None:
    with pytest.raises(TidelogError) as caught:
        parse_options(given, is_streaming=False)
    assert caught.value.code is ErrorCode.INVALID_CONFIGURATION
    assert named in str(caught.value)


@pytest.mark.parametrize("name", ["maxBytesPerTrigger", "maxbytespertrigger"])
def test_an_option_of_a_later_release_is_refused_by_name(name: str) -> None:
    with pytest.raises(TidelogError) as caught:
        parse_options({"subscribe": "a", name: "1"}, is_streaming=True)
    assert caught.value.code is ErrorCode.NOT_IMPLEMENTED
    assert caught.value.tried == "read with the option maxBytesPerTrigger"


def test_a_stream_has_no_ending_offsets() -> None:
    with pytest.raises(TidelogError, match="a stream has no end"):
        parse_options({"subscribe": "a", "endingOffsets": "latest"}, is_streaming=True)
