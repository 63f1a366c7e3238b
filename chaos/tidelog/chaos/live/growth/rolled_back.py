"""A live case: the data directory of one broker goes back in time under everybody.

Owns its steps: one broker is stopped in order and its directory copied, it goes on and is in sync
again; then it is killed, the copy takes the directory's place, and it starts. The first time the
others live on; the second time every broker is killed as well, and the one with the copy starts
first. What the copy lacks is acknowledged and on the disks of the two others, and must be there in
the end; the broker, which is a voter as well, follows the quorum again. It must never count as a
run where the copy lacked nothing.
"""

import shutil
import time
from pathlib import Path
from typing import Final

from tidelog.chaos.live.cluster.nodes import VOTERS
from tidelog.chaos.live.cluster.rounds import wait_whole
from tidelog.chaos.live.growth.growth import Stage, StandsStillError
from tidelog.wire.errors import TidelogError

VICTIM: Final = 2
TOLD: Final = "directory_went_back"


def directory_goes_back(stage: Stage) -> None:
    """See the module."""
    stage.healthy("before the copies")
    for name, others_die in (("while the others live", False), ("while all are dead", True)):
        copied = _copy(stage, f"stopped, copied, started ({name})")
        stage.healthy(f"what the copy lacks is written ({name})")
        _put_back(stage, copied, f"the copy is put back {name}", others_die=others_die)
    stage.healthy("after it")


def _copy(stage: Stage, name: str) -> Path:
    """Of a broker that was stopped in order; it goes on."""
    cluster = stage.cluster
    node = cluster.nodes[VICTIM]
    copied = node.data_dir.with_name("copy")
    with stage.phase(name):
        code = node.stop()
        stage.expect(code == 0, f"the broker that was to be copied ended with {code}")
        shutil.copytree(node.data_dir, copied)
        cluster.quorum.start(VICTIM)
        cluster.wait_registered(VOTERS)
        wait_whole(cluster, stage.load)
    return copied


def _put_back(stage: Stage, copied: Path, name: str, *, others_die: bool) -> None:
    cluster = stage.cluster
    node = cluster.nodes[VICTIM]
    cluster.balance()
    with stage.phase(name):
        dead = list(cluster.nodes) if others_die else [VICTIM]
        for number in dead:
            cluster.kill(number)
        lacking = log_bytes(node.data_dir) - log_bytes(copied)
        print(f"  the copy lacks {lacking} bytes of the logs of broker {VICTIM}", flush=True)
        stage.is_felt = stage.is_felt and lacking > 0
        shutil.rmtree(node.data_dir)
        copied.rename(node.data_dir)
        said = len(node.log_text())
        try:
            cluster.quorum.start(VICTIM, *(number for number in dead if number != VICTIM))
            cluster.wait_registered(VOTERS)
            stage.wait_written(time.monotonic_ns(), tried="write after the copy was put back")
            wait_whole(cluster, stage.load)
            cluster.quorum.wait_settled()
        except TidelogError as error:
            # Led by the old copy it never is: what others hold above its end keeps them from it.
            raise StandsStillError(str(error)) from None
    stage.expect(TOLD in node.log_text()[said:], f"broker {VICTIM} says nothing of its old copy")


def log_bytes(data_dir: Path) -> int:
    """Of all segments there."""
    return sum(file.stat().st_size for file in data_dir.glob("*/*.log"))
