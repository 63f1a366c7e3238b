"""The migration page's tables from the code: `python -m tests.kafka.page` writes them."""

import re
from collections.abc import Iterator, Mapping

from tests.kafka.absent import ABSENT_METHODS, ABSENT_NAMES
from tidelog.kafka.shared.option_table import ADMIN, CONSUMER, PRODUCER, Verdict
from tools.repository import TOP

PAGE = TOP / "docs/migrating-from-kafka.md"


def option_lines() -> list[str]:
    """By verdict, then by name; options that differ between clients have a line each."""
    tables = {"P": PRODUCER, "C": CONSUMER, "A": ADMIN}
    found: dict[tuple[str, str, str], str] = {}
    for letter, table in tables.items():
        for name, option in table.items():
            key = (name, option.verdict.value, option.why)
            found[key] = found.get(key, "") + letter
    lines = ["| option | of | here | |", "|---|---|---|---|"]
    for verdict in Verdict:
        for (name, value, why), of in sorted(found.items()):
            if value == verdict.value:
                lines.append(f"| `{name}` | {of} | {value} | {why} |")
    return lines


def absent_lines() -> list[str]:
    """By reason."""
    return [
        "| what | why |",
        "|---|---|",
        *(f"| {names} | {why} |" for why, names in _by_reason(_all_absent()).items()),
    ]


def _all_absent() -> Iterator[tuple[str, str]]:
    for client, methods in ABSENT_METHODS.items():
        for method, why in methods.items():
            yield f"`{client}.{method}`", why
    for module, names in ABSENT_NAMES.items():
        for name, why in names.items():
            yield f"`kafka{module}.{name}`", why


def _by_reason(absent: Iterator[tuple[str, str]]) -> Mapping[str, str]:
    found: dict[str, list[str]] = {}
    for name, why in absent:
        found.setdefault(why, []).append(name)
    return {why: ", ".join(names) for why, names in found.items()}


def with_tables(text: str) -> str:
    """The page with these tables in place of those that begin alike."""
    for lines in (option_lines(), absent_lines()):
        found = re.search(rf"^{re.escape(lines[0])}\n(?:\|.*\n)*", text, re.MULTILINE)
        assert found is not None, f"the page has a table {lines[0]}"
        text = text[: found.start()] + "\n".join(lines) + "\n" + text[found.end() :]
    return text


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
