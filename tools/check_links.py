"""Follows every relative link of the Markdown pages, to its file and to its heading.

Links to other hosts are not followed: a check must not depend on a network.
"""

import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from markdown_it import MarkdownIt

from tools.repository import TOP, tracked_files

_EXTERNAL: Final = re.compile(r"[a-z][a-z0-9+.-]*:")
_ANCHOR_TAG: Final = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")


def slug(heading: str) -> str:
    """The anchor that a heading gets where the pages are shown."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Every anchor of a page; repeated headings get a number."""
    found = set(_ANCHOR_TAG.findall(text))
    seen: dict[str, int] = {}
    tokens = MarkdownIt("commonmark").parse(text)
    for opening, content in itertools.pairwise(tokens):
        if opening.type == "heading_open":
            plain = "".join(
                child.content for child in content.children or [] if child.type != "html_inline"
            )
            name = slug(plain)
            count = seen.get(name, 0)
            found.add(f"{name}-{count}" if count else name)
            seen[name] = count + 1
    return found


def links(text: str) -> Iterator[tuple[int, str]]:
    """Line and target of every link and image."""
    for token in MarkdownIt("commonmark").parse(text):
        for child in token.children or []:
            target = child.attrGet("href") or child.attrGet("src")
            if target is not None:
                yield (token.map[0] + 1 if token.map else 0), str(target)


def faults_of_page(page: Path, top: Path) -> list[str]:
    """A line for each link of a page that leads nowhere."""
    found = []
    for line, target in links((top / page).read_text(encoding="utf-8")):
        if _EXTERNAL.match(target):
            continue
        name, _, anchor = unquote(target).partition("#")
        goal = (top / page.parent / name).resolve() if name else (top / page)
        if top.resolve() not in goal.resolve().parents:
            found.append(f"{page}:{line}: {target} leads out of the repository")
        elif not goal.exists():
            found.append(f"{page}:{line}: {target} does not exist")
        elif anchor and goal.suffix == ".md" and anchor not in anchors(goal.read_text("utf-8")):
            found.append(f"{page}:{line}: {target} has no heading #{anchor}")
    return found


def faults(top: Path) -> list[str]:
    """A line for each link that leads nowhere, over all pages."""
    pages = [path for path in tracked_files(top) if path.suffix == ".md"]
    return [line for page in pages for line in faults_of_page(page, top)]


def main() -> int:
    """Prints what leads nowhere."""
    found = faults(TOP)
    print("\n".join(found) if found else "every link leads somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
