"""`python -m tidelog.chaos.live.processes.planted BUG server …`: a real node with a bug in it.

Owns nothing: the bugs are those that the simulator must find, planted into the classes of this
process before the node begins. They are there to see a live verdict fail; no setting, variable or
file of a node leads here.
"""

import runpy
import sys
from typing import Final

from tidelog.chaos.sim.planted import load_planted, planted

SUITE: Final = "cluster"


def main(arguments: list[str]) -> None:
    """Ends as the node ends; what a broken substitute raised is told behind its log."""
    name, *rest = arguments
    sys.argv = ["tidelog", *rest]
    with planted(load_planted(SUITE)[name]) as breakages:
        try:
            runpy.run_module("tidelog", run_name="__main__")
        finally:
            for each in breakages:
                print(f"the planted bug broke: {each}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
