"""The page for other languages says which files a node serves."""

import re
from pathlib import Path

from tidelog.broker.services.metadata.table import METADATA_FILES
from tidelog.broker.services.table import BROKER_FILES
from tidelog.server.node.cluster_methods import CONTROLLER_FILES, REPLICA_FILES

TOP = Path(__file__).parents[2]
PROTO = "tidelog/v1/"


def test_the_table_of_files_says_which_are_served() -> None:
    page = (TOP / "docs/other-languages.md").read_text("utf-8")
    told: dict[str, str] = {}
    for files, word in re.findall(r"^\| (`[^|]*`) \| [^|]* \| (yes|not yet) \|$", page, re.M):
        told |= dict.fromkeys(re.findall(r"`(\w+)`", files), word)
    every = {
        path.stem
        for path in (TOP / "proto/tidelog/v1").glob("*.proto")
        if "\nservice " in path.read_text("utf-8")
    }
    served = {
        each.name.removeprefix(PROTO).removesuffix(".proto")
        for each in (*BROKER_FILES, *METADATA_FILES, *CONTROLLER_FILES, *REPLICA_FILES)
    }
    assert told.keys() == every
    assert {name for name, word in told.items() if word == "yes"} == served
