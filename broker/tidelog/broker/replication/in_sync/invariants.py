"""What holds of an in-sync set after every input. Pure.

Owns the argument of `set` in a form that a machine can check: whoever may be in sync for the
controller is waited for, and nobody is asked for whose word is not of this epoch. Reads private
state, and must never change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.replication.shared.in_sync_types import Asking

if TYPE_CHECKING:
    from tidelog.broker.replication.in_sync.set import InSyncSet


def check(known: InSyncSet) -> None:
    """Fails with what is wrong, and of which partition."""
    _check_positions(known)
    _check_change(known)
    _check_rounds(known)


def _check_positions(known: InSyncSet) -> None:
    key, led = known.key, known.led
    assert known._broker_id in led.in_sync, f"{key}: its leader is out of sync"
    for broker_id, position in known._positions.items():
        assert broker_id in led.replicas, f"{key}: a position of {broker_id}, which is no replica"
        assert position.leader_epoch == led.leader_epoch, f"{key}: a position of another epoch"
    for broker_id in known._coming:
        assert broker_id not in led.in_sync, f"{key}: broker {broker_id} comes and is there"
        assert broker_id in known._positions, f"{key}: broker {broker_id} comes and said nothing"


def _check_change(known: InSyncSet) -> None:
    key, led, change = known.key, known.led, known._change
    is_wanted = known._asking not in (Asking.NOTHING, Asking.OPEN)
    assert change is not None or not is_wanted, f"{key}: {known._asking} of no change"
    if change is None:
        assert not known._asked, f"{key}: {list(known._asked)} were asked for by no change"
        return
    epochs = (change.leader_epoch, change.partition_epoch)
    assert epochs == (led.leader_epoch, led.partition_epoch), f"{key}: a change of other epochs"
    waited_for = (known._broker_id, *known.others)
    for broker_id, _ in change.members:
        # The watermark may not pass a broker that the controller is about to let in.
        assert broker_id in waited_for, f"{key}: broker {broker_id} is asked for, not waited for"


def _check_rounds(known: InSyncSet) -> None:
    key = known.key
    assert known._round_counted <= known._round, f"{key}: counted before it was told"
    if known._told is not None:
        others, in_sync_count = known._told
        assert set(known.led.in_sync) <= {known._broker_id, *others}, f"{key}: too few are told"
        assert in_sync_count == len(known.led.in_sync), f"{key}: another count is told"
