"""How long a test waits for a cluster: process start to ready, beside an empty Python.

`python -m bench.ready [STARTS]`. Each start is a process of its own, kinds in turns, so that what
else the machine does falls on all of them alike.
"""

import statistics
import subprocess
import sys
import time
from typing import Final

STARTS: Final = 10
TIMEOUT_S: Final = 120.0
READY: Final = """
import sys, time
from tidelog.testing import TestCluster
begun = time.perf_counter()
with TestCluster(brokers={brokers}):
    print("ready", time.perf_counter() - begun, flush=True)
    sys.stdin.read()
"""
EMPTY: Final = """
import sys
print("ready 0", flush=True)
sys.stdin.read()
"""
KINDS: Final = {
    "empty Python": EMPTY,
    "TestCluster(brokers=1)": READY.format(brokers=1),
    "TestCluster(brokers=3)": READY.format(brokers=3),
}


def start(program: str) -> tuple[float, float]:
    """Seconds from the process's start to ready, and those of the start of the cluster alone."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None, "it has a pipe"
        words = process.stdout.readline().split()
        whole_s = time.perf_counter() - begun
        process.communicate(timeout=TIMEOUT_S)
        return whole_s, float(words[1])
    finally:
        process.kill()
        process.wait()


def main(starts: int) -> None:
    """A line for each kind: median, least and most."""
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for _ in range(starts):
        for kind, program in KINDS.items():
            found[kind].append(start(program))
    print(f"{starts} starts each, seconds: median (least - most)")
    for kind, times in found.items():
        for what, place in (("process to ready", 0), ("start of the cluster", 1)):
            each = sorted(one[place] for one in times)
            if each[-1]:
                print(
                    f"{kind:<24} {what:<21} {statistics.median(each):.2f} "
                    f"({each[0]:.2f} - {each[-1]:.2f})"
                )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else STARTS)
