"""Pages written from the sources: each setting with its type, default and meaning."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from tools import generate_docs, settings_page
from tools.repository import TOP


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    """What stands inside."""

    size_bytes: Annotated[int, msgspec.Meta(description="How much; one | two.", ge=1)] = 1 << 20


class Outer(msgspec.Struct, frozen=True, kw_only=True):
    """What is set."""

    name: str = "x"
    """Who
    it is."""

    flush: Literal["sync", "replicated"] = "sync"
    inner: Inner = Inner(size_bytes=7)
    hosts: tuple[str, ...] = ()


class Arguments(Outer, frozen=True, kw_only=True):
    """What is passed."""

    rack: str | None = None
    """Where it stands."""
    encode: Callable[[str], bytes] | None = None


def test_each_setting_of_a_tree_stands_in_the_section_of_its_table() -> None:
    assert list(settings_page.tree_lines(Outer)) == [
        "What is set.",
        "",
        "| setting | type | default | meaning |",
        "|---|---|---|---|",
        '| `name` | str | `"x"` | Who it is. |',
        "| `flush` | `'sync'` or `'replicated'` | `\"sync\"` |  |",
        "| `hosts` | list of str | `[]` |  |",
        "",
        "### [inner]",
        "",
        "What stands inside.",
        "",
        "| setting | type | default | meaning |",
        "|---|---|---|---|",
        r"| `size_bytes` | int | `7` | How much; one \| two. At least 1. |",
    ]


def test_arguments_that_a_class_inherits_are_explained_too() -> None:
    lines = list(settings_page.arguments_lines(Arguments))
    assert "| `name` | str | `'x'` | Who it is. |" in lines
    assert lines[-2:] == [
        "| `rack` | str or none | `None` | Where it stands. |",
        "| `encode` | function or none | `None` |  |",
    ]


@pytest.mark.parametrize("name", ["docs/configuration.md", "docs/errors.md"])
def test_a_generated_page_is_current_and_says_what_wrote_it(name: str) -> None:
    text = (TOP / name).read_text("utf-8")
    assert text == generate_docs.pages()[Path(name)]
    assert "do not edit" in text.splitlines()[0]
