"""Writes the pages of docs/ that come from the sources, or checks that they are current.

Owns docs/errors.md, from the catalogue of errors, docs/configuration.md, from the Structs that
hold a node's settings and a client's arguments, docs/node.toml, an example of a node's file, from
the same, and docs/metrics.md, from the catalogue of metrics.
"""

import argparse
import inspect
import sys
from pathlib import Path
from typing import Final

from tools.repository import TOP, room_paths
from tools.settings_page import arguments_lines, cell, tree_lines

GENERATED: Final = "<!-- Written by `make docs` from {source}; do not edit. -->"


def errors_page() -> str:
    """Every error code: number, meaning, whether a retry can help, what to do."""
    from tidelog.wire.errors import CATALOGUE, ErrorCode

    lines = [
        GENERATED.format(source="`tidelog.wire.errors`"),
        "",
        "# Errors",
        "",
        "Every error that a client, a command or the protocol reports carries one of these codes.",
        "Names and numbers never change their meaning. *Retriable*: the same call may succeed",
        "later without a change by the caller.",
        "",
        "| code | number | meaning | retriable | what to do |",
        "|---|---|---|---|---|",
    ]
    for code in ErrorCode:
        meaning = CATALOGUE[code]
        retriable = "yes" if meaning.retriable else "no"
        cells = (meaning.meaning, retriable, meaning.remedy)
        lines.append(f"| `{code.name}` | {int(code)} | {' | '.join(map(cell, cells))} |")
    return "\n".join(lines) + "\n"


def configuration_page() -> str:
    """Every setting and argument: name, type, default, meaning."""
    from tidelog.client.arguments.options import AdminOptions, ConsumerOptions, ProducerOptions
    from tidelog.server.settings.configuration import NodeConfiguration

    lines = [
        GENERATED.format(
            source="`tidelog.server.settings.configuration`, `tidelog.metadata.settings.catalogue` "
            "and `tidelog.client.arguments.options`"
        ),
        "",
        "# Configuration",
        "",
        "## A node",
        "",
        "A setting comes from, in this order: the command line, an environment variable, the TOML",
        "file, the default. The variable of a setting is `TIDELOG_`, the names of its tables and",
        "its own, in capitals, joined by underscores: `bind` in `[listeners.client]` is",
        "`TIDELOG_LISTENERS_CLIENT_BIND`. A name in the file that is not listed here is refused.",
        "",
        *tree_lines(NodeConfiguration),
        "",
        "## A cluster that runs",
        "",
        "Kept in the metadata and changed with `tidelog config`. A topic's value comes first,",
        "then its broker's, then the cluster's, then the default. A value that this release does",
        "not act upon is refused.",
        "",
        *_dynamic_lines(),
        "",
        "## Clients",
        "",
        "Arguments of the classes in `tidelog.client`. Names are those of Kafka's Python clients.",
    ]
    for kind in (ProducerOptions, ConsumerOptions, AdminOptions):
        title = str(inspect.getdoc(kind)).removesuffix(".")
        lines += ["", f"### {title}", "", *arguments_lines(kind)]
    return "\n".join(lines) + "\n"


def _dynamic_lines() -> list[str]:
    from tidelog.metadata.settings.catalogue import CATALOGUE
    from tidelog.metadata.settings.kinds import NUMBER_MAX, Kind

    lines = ["| setting | of | default | allowed now | meaning |", "|---|---|---|---|---|"]
    for name in sorted(CATALOGUE):
        setting = CATALOGUE[name]
        of = ", ".join(scope.value for scope in setting.scopes)
        allowed = ", ".join(f"`{value}`" for value in setting.served or setting.choices)
        if not allowed and setting.kind in (Kind.NUMBER, Kind.DECIMAL):
            highest = " or more" if setting.highest == NUMBER_MAX else f" to {setting.highest}"
            allowed = f"{setting.lowest}{highest}"
        cells = (f"`{name}`", of, f"`{setting.default}`", allowed, cell(setting.documentation))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def metrics_page() -> str:
    """Every metric of a node: name, labels, meaning."""
    from tidelog.server.metrics.catalogue import SECTIONS, written_name

    lines = [
        GENERATED.format(source="`tidelog.server.metrics.catalogue`"),
        "",
        "# Metrics",
        "",
        "What a node exports on `/metrics` if `metrics.bind` is set, in the text format of",
        "Prometheus or, if the scraper asks for it, OpenMetrics. Counters begin at 0 with the",
        "process. A part that a node does not have (no broker, no member of the quorum) exports",
        "nothing; a label value that never occurred is not there. Durations are in seconds, sizes",
        "in bytes. How to read them: [operations](operations.md#monitoring).",
    ]
    for section, metrics in SECTIONS.items():
        lines += [
            "",
            f"## {section}",
            "",
            "| metric | kind | labels | meaning |",
            "|---|---|---|---|",
        ]
        for name, metric in metrics.items():
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            cells = (f"`{written_name(name)}`", metric.kind.value, labels, cell(metric.meaning))
            lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "## Process",
        "",
        "As every Python process that uses `prometheus_client`: `process_cpu_seconds_total`,",
        "`process_resident_memory_bytes`, `process_virtual_memory_bytes`, `process_open_fds`,",
        "`process_max_fds`, `process_start_time_seconds`, `python_gc_collections_total`,",
        "`python_gc_objects_collected_total`, `python_gc_objects_uncollectable_total` and",
        "`python_info`.",
    ]
    return "\n".join(lines) + "\n"


def example_configuration() -> str:
    """A node's file with every setting explained, none of them set."""
    from tidelog.cli.config.show import as_toml
    from tidelog.cli.node.settings import defaults

    head = [
        "# Settings of a node, with what holds where nothing is said: take the # before a value",
        "# away to change it. `tidelog config check FILE` tells what is wrong with a file,",
        "# `tidelog server --config FILE` starts a node with it.",
        "# Written by `make docs` from `tidelog.server.settings.configuration`.",
    ]
    return "\n".join(head) + "\n\n" + as_toml(defaults(), mark="#") + "\n"


def pages() -> dict[Path, str]:
    """Every generated page and what it should hold."""
    return {
        Path("docs/errors.md"): errors_page(),
        Path("docs/configuration.md"): configuration_page(),
        Path("docs/metrics.md"): metrics_page(),
        Path("docs/node.toml"): example_configuration(),
    }


def main() -> int:
    """Writes the pages, or with --check only compares them."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate_docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    is_check = parser.parse_args().check
    # The rooms beside this tool come first: the environment may have another checkout installed.
    sys.path[:0] = room_paths()
    stale = 0
    for path, text in pages().items():
        current = (TOP / path).read_text("utf-8") if (TOP / path).is_file() else ""
        if current != text:
            stale += 1
            if not is_check:
                (TOP / path).write_text(text, "utf-8")
            print(f"{path}: {'differs from its source' if is_check else 'written'}")
    return 1 if stale and is_check else 0


if __name__ == "__main__":
    sys.exit(main())
