"""A live case: the data directory of one broker goes back in time under everybody.

Owns its steps: one broker is stopped in order and its directory copied, it goes on and is in sync
again; then every broker is killed, the copy takes the directory's place, and all start, that broker
first. What the copy lacks is acknowledged and on the disks of the two others, and must be there in
the end. It must never count as a run where the copy lacked nothing.
"""

import shutil
import time
from pathlib import Path
from typing import Final

from tidelog.chaos.live.cluster_growth import Stage, StandsStillError
from tidelog.chaos.live.cluster_growth_nodes import VOTERS
from tidelog.chaos.live.cluster_rounds import wait_whole
from tidelog.wire.errors import TidelogError

VICTIM: Final = 2
TOLD: Final = "directory_went_back"


def directory_goes_back(stage: Stage) -> None:
    """See the module."""
    cluster = stage.cluster
    node = cluster.nodes[VICTIM]
    copied = node.data_dir.with_name("copy")
    stage.healthy("before the copy")
    with stage.phase("a broker is stopped, copied, started"):
        code = node.stop()
        stage.expect(code == 0, f"the broker that was to be copied ended with {code}")
        shutil.copytree(node.data_dir, copied)
        cluster.quorum.start(VICTIM)
        cluster.wait_registered(VOTERS)
        wait_whole(cluster, stage.load)
    stage.healthy("what the copy lacks is written")
    cluster.balance()
    with stage.phase("all are killed, the copy is put back, all start"):
        for number in cluster.numbers:
            cluster.kill(number)
        lacking = log_bytes(node.data_dir) - log_bytes(copied)
        print(f"  the copy lacks {lacking} bytes of the logs of broker {VICTIM}", flush=True)
        stage.is_felt = lacking > 0
        shutil.rmtree(node.data_dir)
        copied.rename(node.data_dir)
        said = len(node.log_text())
        others = [number for number in cluster.nodes if number != VICTIM]
        cluster.quorum.start(VICTIM, *others)
        cluster.wait_registered(VOTERS)
        try:
            stage.wait_written(time.monotonic_ns(), tried="write after all have started")
            wait_whole(cluster, stage.load)
        except TidelogError as error:
            # Led by the old copy it never is: what others hold above its end keeps them from it.
            raise StandsStillError(str(error)) from None
    stage.expect(TOLD in node.log_text()[said:], f"broker {VICTIM} says nothing of its old copy")
    stage.healthy("after it")


def log_bytes(data_dir: Path) -> int:
    """Of all segments there."""
    return sum(file.stat().st_size for file in data_dir.glob("*/*.log"))
