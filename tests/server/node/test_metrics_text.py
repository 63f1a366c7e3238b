"""A scrape as text: both formats read by the parsers of the field's own library."""

import asyncio
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read_plain

from tidelog.broker.shared.meter import Histogram
from tidelog.server.metrics.catalogue import METRICS, PROCESS_PREFIXES, written_name
from tidelog.server.metrics.scrape import Scrape
from tidelog.server.metrics.table.metric import Kind
from tidelog.server.metrics.text import OPEN_METRICS, SAMPLES_A_SLICE, encode

TOP = Path(__file__).parents[3]


def open_families(text: str) -> list[Metric]:
    read: Callable[[str], Iterable[Metric]] = read_open
    return list(read(text))


def full_scrape() -> Scrape:
    """Every metric, each with awkward label values."""
    scrape, histogram = Scrape(), Histogram()
    histogram.add(2_000_000)
    for name, metric in METRICS.items():
        labels = tuple(f'{each} "quoted" \\ and\nbroken' for each in metric.labels)
        if metric.kind is Kind.HISTOGRAM:
            scrape.histogram(name, histogram, *labels)
        else:
            scrape.set(name, 1, *labels)
    return scrape


def written(scrape: Scrape, accept: str = "", *, of_process: bool = False) -> str:
    return asyncio.run(encode(scrape, accept, of_process=of_process))[0].decode()


def test_every_metric_of_the_catalogue_is_read_back_from_the_plain_format() -> None:
    families = {each.name: each for each in read_plain(written(full_scrape()))}
    missing = [
        name for name in METRICS if name not in families and written_name(name) not in families
    ]
    assert missing == []
    metric = families["tidelog_requests"]
    assert metric.type == "counter"
    (sample,) = metric.samples
    assert sample.name == "tidelog_requests_total"
    assert sample.labels["listener"] == 'listener "quoted" \\\\ and\\u000abroken'


def test_every_metric_of_the_catalogue_is_read_back_as_openmetrics() -> None:
    text, content_type = asyncio.run(
        encode(full_scrape(), f"{OPEN_METRICS}; version=1.0.0,text/plain;q=0.5", of_process=True)
    )
    families = {each.name: each for each in open_families(text.decode())}
    assert content_type.startswith(OPEN_METRICS)
    assert [name for name in METRICS if name not in families] == []
    histogram = families["tidelog_request_duration_seconds"]
    values = {each.labels.get("le", each.name): each.value for each in histogram.samples}
    assert (values["0.001"], values["0.0025"], values["+Inf"]) == (0, 1, 1)
    assert values["tidelog_request_duration_seconds_sum"] == 0.002


def test_a_long_family_is_written_in_slices_and_says_once_what_it_is() -> None:
    scrape = Scrape()
    count = SAMPLES_A_SLICE * 2 + 1
    for number in range(count):
        scrape.set("tidelog_partition_size_bytes", number, "t", str(number))
    text = written(scrape)
    assert text.count("# TYPE") == text.count("# HELP") == 1
    (family,) = read_plain(text)
    assert [each.value for each in family.samples] == list(range(count))


def test_the_loop_turns_between_the_slices() -> None:
    scrape, turns = Scrape(), 0
    for number in range(SAMPLES_A_SLICE * 5):
        scrape.set("tidelog_partition_size_bytes", number, "t", str(number))

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def main() -> None:
        beside = asyncio.get_running_loop().create_task(turn())
        await encode(scrape, "", of_process=False)
        beside.cancel()

    asyncio.run(main())
    assert turns >= 5


def test_figures_of_the_process_are_documented_by_name() -> None:
    page = (TOP / "docs/metrics.md").read_text()
    text = written(Scrape(), of_process=True)
    names = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    assert names
    assert [name for name in names if not name.startswith(PROCESS_PREFIXES)] == []
    assert [name for name in names if f"`{name}`" not in page] == []


def test_the_page_of_metrics_names_each_metric_and_no_other() -> None:
    page = (TOP / "docs/metrics.md").read_text()
    named = re.findall(r"^\| `(tidelog_\w+)`", page, re.MULTILINE)
    assert named == [written_name(name) for name in METRICS]


def test_a_value_under_a_name_that_nobody_knows_or_with_other_labels_is_a_bug() -> None:
    scrape = Scrape()
    with pytest.raises(KeyError):
        scrape.set("tidelog_nothing", 1)
    with pytest.raises(AssertionError, match="other labels"):
        scrape.set("tidelog_quorum_term", 1, "x")
    with pytest.raises(AssertionError, match="is a histogram"):
        scrape.set("tidelog_request_duration_seconds", 1, "a", "b")


STRANGE = (
    "\x1b[31mred",
    "a\0b",
    "a\u2028b",
    "a\u202eb",
    "\x85",
    "\U000e0041",
    "a\\u0000b",
    "a\\b",
    "ü",
)


def test_names_of_strangers_stand_in_labels_without_what_is_not_printed_and_apart() -> None:
    scrape = Scrape()
    for number, name in enumerate(STRANGE):
        scrape.set("tidelog_group_lag_records", number, name)
    text = written(scrape)
    assert all(each.isprintable() for each in text.splitlines())
    assert "ü" in text
    (family,) = read_plain(text)
    assert len({sample.labels["group"] for sample in family.samples}) == len(STRANGE)
