"""Percentiles, ratios and tables: the arithmetic behind every printed figure."""

import pytest

from bench.table import Table, Throughput, median, percentile, ratio


def test_a_percentile_is_always_a_value_that_was_measured() -> None:
    samples = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(samples, fraction) for fraction in (0.2, 0.5, 0.99, 1.0)] == [1, 3, 5, 5]


def test_the_last_percentile_of_a_thousand_leaves_one_sample_above_it() -> None:
    samples = [float(number) for number in range(1, 1001)]
    assert percentile(samples, 0.999) == 999.0


def test_the_median_of_an_even_number_is_the_lower_middle() -> None:
    assert median([4.0, 1.0, 3.0, 2.0]) == 2.0


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(AssertionError, match="percentile of nothing"):
        percentile([], 0.5)


@pytest.mark.parametrize("fraction", [0.0, 1.01, -0.5])
def test_a_fraction_outside_its_range_is_refused(fraction: float) -> None:
    with pytest.raises(AssertionError, match="outside"):
        percentile([1.0], fraction)


def test_a_ratio_names_ours_first_and_a_peer_without_a_figure_has_none() -> None:
    assert ratio(300.0, 200.0) == "1.50"
    assert ratio(300.0, 0.0) == "-"


def test_throughput_gives_the_three_published_figures() -> None:
    moved = Throughput(records=2_000_000, record_bytes=100, seconds=4.0)
    assert moved.records_per_second == 500_000
    assert moved.megabytes_per_second == 50.0
    assert moved.records_per_hour == 1_800_000_000


def test_a_table_aligns_text_left_and_figures_right() -> None:
    table = Table("Title", ("name", "rec/s"))
    table.add("a long name", "1,234")
    table.add("short", "5")
    lines = table.text().splitlines()
    assert lines[1:6] == [
        "Title",
        "name         rec/s",
        "-----------  -----",
        "a long name  1,234",
        "short            5",
    ]


def test_a_table_says_what_else_the_machine_did() -> None:
    table = Table("Title", ("name",))
    table.add("a")
    assert table.text().splitlines()[-1].startswith("(load average ")


def test_a_row_of_the_wrong_width_is_refused() -> None:
    with pytest.raises(AssertionError, match="1 cells for 2 columns"):
        Table("Title", ("name", "rec/s")).add("a")
