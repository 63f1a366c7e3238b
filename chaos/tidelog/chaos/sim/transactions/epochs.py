"""Lets transactional ids begin near the end of their producer id's epochs, as in long use.

The only thing of a broker that the suite changes: the first record that a coordinator writes of an
id carries the epoch that the plan wants. Everything from there on is the broker's own.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from msgspec.structs import replace

from tidelog.broker.transactions.core import takeover
from tidelog.broker.transactions.state.answers import Identity, InitAnswer
from tidelog.broker.transactions.state.draft import TransactionDraft
from tidelog.broker.transactions.state.world import TransactionWorld
from tidelog.wire.ids import ProducerEpoch


@contextmanager
def first_epochs(epochs: Mapping[str, int]) -> Iterator[None]:
    """While inside, these ids begin at these epochs."""
    original = takeover._begin

    def begin(
        world: TransactionWorld, draft: TransactionDraft, timeout_ms: int, tried: str
    ) -> InitAnswer:
        answer = original(world, draft, timeout_ms, tried)
        epoch = epochs.get(draft.transactional_id, 0)
        made = draft.transaction
        assert made is not None, "an id was made"
        if epoch == 0:
            return answer
        identity = Identity(answer.identity.producer_id, ProducerEpoch(epoch))
        draft.put(replace(made.value, current=identity))
        return InitAnswer(identity=identity)

    takeover._begin = begin
    try:
        yield
    finally:
        takeover._begin = original
