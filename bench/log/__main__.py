"""`python -m bench.log [--only append,stored,hot,many] [--root DIR]`: the partition log by itself.

Prints figures and ratios; it must never fail for being slow, nor leave anything behind.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Final

from bench.log import append, hot, many, stored

PARTS: Final = ("append", "many", "hot", "stored")


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.log", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="some of " + ",".join(PARTS))
    parser.add_argument("--root", default=tempfile.gettempdir(), help="where data is written")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one measurement")
    parser.add_argument("--repetitions", type=int, default=3, help="of an append line")
    parser.add_argument("--partitions", type=int, default=10_000, help="in one process")
    parser.add_argument("--stored-gb", type=float, help="the most; default min(50, half the disk)")
    given = parser.parse_args()
    root = Path(given.root)
    parts = given.only.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]}; there are {', '.join(PARTS)}")
    if "append" in parts:
        append.run(root, given.seconds, given.repetitions)
    if "many" in parts:
        many.run(root, given.partitions, given.seconds)
    most = stored.stored_max_bytes(root)
    if given.stored_gb is not None:
        most = int(given.stored_gb * 10**9)
    if "hot" in parts:
        hot.run(root, min(4 * 10**9, most), 10 * given.seconds)
    if "stored" in parts:
        stored.run(root, sorted({min(size, most) for size in (10**9, 10**10, most)}))


if __name__ == "__main__":
    main()
