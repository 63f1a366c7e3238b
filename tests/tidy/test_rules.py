"""Each rule about the repository sees the fault that it is there for; `make check` applies them."""

from pathlib import Path

import pytest

from tools import check_links, tidy
from tools.repository import ROOTS, TOP

REGISTRY = ".".join(("pypi", "org"))
PLANTS = {
    "sources_parse": ("tools/new.py", "def broken(:\n"),
    "files_are_short": ("tools/long.py", '"""Owns nothing at all."""\n' * 701),
    "functions_are_short": ("tools/long.py", "def long() -> None:\n" + "    assert True\n" * 60),
    "modules_say_what_they_own": ("broker/tidelog/broker/new.py", "VALUE = 1\n"),
    "no_path_of_a_machine": ("docs/page.md", "Look into /" + "home/somebody/data.\n"),
    "no_registry_host": ("tools/install.sh", f"pip install -i https://{REGISTRY}/simple x\n"),
    "nothing_is_left_undone": ("tools/new.py", "# TO" + "DO: finish\n"),
    "no_number_of_an_issue": ("docs/page.md", f"As issue {7} wants it.\n"),
    "the_namespace_stays_open": ("ports/tidelog/__init__.py", ""),
    "packages_are_typed": ("broker/tidelog/broker/__init__.py", '"""Owns the broker\'s data."""\n'),
    "rooms_hold_nothing_else": ("broker/common/__init__.py", '"""Owns what is common."""\n'),
    "folders_are_packages": ("broker/tidelog/broker/log/a.py", '"""Owns a segment on disk."""\n'),
    "packages_import": ("broker/tidelog/broker/__init__.py", "import no_such_module\n"),
    "tests_are_sentences": ("tests/a/test_a.py", "def test_append_2() -> None: ...\n"),
    "tests_have_no_packages": ("tests/a/__init__.py", ""),
    "executors_stay_behind_ports": ("chaos/tidelog/chaos/a.py", "loop.run_in_executor(None, f)\n"),
    "pure_modules_iterate_no_set": ("proto/tidelog/wire/a.py", "x = [v for v in {1, 2}]\n"),
    "state_is_private": (
        "broker/tidelog/broker/directory/core/a.py",
        "def stop(state):\n    state.failure = None\n",
    ),
    "chaos_is_imported_lazily": (
        "cli/tidelog/cli/main.py",
        "from tidelog.chaos import sim\n",
    ),
    "packaging_names_every_room": ("chaos/pyspark_tidelog/__init__.py", ""),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder that is no checkout, with the packaging of this one."""
    (tmp_path / "pyproject.toml").write_text((TOP / "pyproject.toml").read_text())
    return tmp_path


def _plant(tree: Path, name: str, text: str) -> None:
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("rule", tidy.RULES, ids=lambda rule: str(rule.__name__))
def test_a_rule_sees_its_fault_and_nothing_in_an_empty_tree(tree: Path, rule: tidy.Rule) -> None:
    assert list(rule(tree)) == []
    name, text = PLANTS[rule.__name__]
    _plant(tree, name, text)
    found = list(rule(tree))
    assert found, f"{rule.__name__} did not see {name}"
    assert any(
        line.startswith((name, str(Path(name).parent), "pyproject", "tidelog.")) for line in found
    )


CORE_FILE = "broker/tidelog/broker/directory/core/new.py"


@pytest.mark.parametrize(
    "line",
    [
        "partition.log.failure = error",
        "self.log.failure = error",
        "state.count += 1",
        "state.marks[key], kept = 1, 2",
        "del state.partitions[key]",
        "state.queue.append(batch)",
        "self.log.segments.clear()",
        "for core.place in (): pass",
        "print(state._effects)",
    ],
)
def test_a_write_to_the_attribute_of_another_is_seen(tree: Path, line: str) -> None:
    _plant(tree, CORE_FILE, f"class A:\n    def do(self, state):\n        {line}\n")
    assert len(list(tidy.state_is_private(tree))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "self.count, self.queue[0] = 1, 2",
        "self.queue.append(batch)",
        "kept.append(batch)",
        "state.enqueue(batch)",
        "print(state.queue, self._effects)",
    ],
)
def test_an_object_writes_what_is_its_own(tree: Path, line: str) -> None:
    _plant(tree, CORE_FILE, f"class A:\n    def do(self, state):\n        {line}\n")
    assert list(tidy.state_is_private(tree)) == []


def test_every_root_of_the_namespace_is_a_room_here() -> None:
    assert [root for root in ROOTS if not (TOP / root / "tidelog").is_dir()] == []


def test_links_to_missing_files_headings_and_outside_are_found(tree: Path) -> None:
    _plant(tree, "docs/b.md", "# What it is\n\n## What it is\n")
    good = "[a](b.md) [b](b.md#what-it-is) [c](b.md#what-it-is-1) [d](https://example.org/x)"
    _plant(tree, "docs/a.md", f"{good}\n\n[e](c.md)\n\n[f](b.md#nowhere)\n\n[g](../../x.md)\n")
    assert check_links.faults(tree) == [
        "docs/a.md:3: c.md does not exist",
        "docs/a.md:5: b.md#nowhere has no heading #nowhere",
        "docs/a.md:7: ../../x.md leads out of the repository",
    ]
