"""Pages written from the sources: each setting with its type, default and meaning."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from tools import generate_docs
from tools.repository import TOP


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    """What stands inside."""

    size_bytes: int = 1 << 20
    """How much; one | two."""


class Outer(msgspec.Struct, frozen=True, kw_only=True):
    """What is set."""

    name: str
    """Who
    it is."""

    flush: Literal["sync", "replicated"] = "sync"
    hosts: tuple[str, ...] = ()
    rack: Annotated[str | None, msgspec.Meta(description="Where it stands.")] = None
    inner: Inner = Inner()


def test_a_page_tells_type_default_and_meaning_of_each_setting() -> None:
    page = generate_docs.configuration_page([sys.modules[__name__]])
    assert page[page.index("## Inner") :].splitlines() == [
        "## Inner",
        "",
        "What stands inside.",
        "",
        "| setting | type | default | meaning |",
        "|---|---|---|---|",
        r"| `size_bytes` | `int` | `1048576` | How much; one \| two. |",
        "",
        "## Outer",
        "",
        "What is set.",
        "",
        "| setting | type | default | meaning |",
        "|---|---|---|---|",
        "| `name` | `str` | required | Who it is. |",
        "| `flush` | `'sync' or 'replicated'` | `'sync'` |  |",
        "| `hosts` | `tuple of str` | `()` |  |",
        "| `rack` | `str or none` | `None` | Where it stands. |",
        "| `inner` | `Inner` | see [Inner](#inner) |  |",
    ]


@pytest.mark.parametrize("path", generate_docs.pages(), ids=str)
def test_a_generated_page_is_current_and_says_what_wrote_it(path: Path) -> None:
    text = (TOP / path).read_text("utf-8")
    assert text == generate_docs.pages()[path]
    assert "do not edit" in text.splitlines()[0]
