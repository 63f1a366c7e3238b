"""How a program of a live run ends a transaction, whatever the producer says.

Owns the translation of the SDK's errors into what a process knows: committed, aborted, or neither.
It does what each error says is next, and no more.
"""

from typing import Final

from tidelog.chaos.live.transactions.journal import ClientJournal, Deciding, Ended, now_ns
from tidelog.client import Producer
from tidelog.client.errors import TidelogError, TransactionError

COMMITTED: Final = "ok"
ABORTED: Final = "fail"
UNKNOWN: Final = "info"
CALL_SECONDS: Final = 20.0
TRIES_MAX: Final = 30


class ProducerIsDone(Exception):
    """Another one has taken over, or the producer says that it is of no use any more."""


def decide(producer: Producer, journal: ClientJournal, *, is_commit: bool) -> str:
    """Commits or aborts; how it ended. ProducerIsDone after a fatal error."""
    journal.write(Deciding(now_ns(), is_commit))
    outcome, is_done = _decided(producer, is_commit=is_commit)
    journal.write(Ended(now_ns(), outcome))
    if is_done:
        raise ProducerIsDone
    return outcome


def _decided(producer: Producer, *, is_commit: bool) -> tuple[str, bool]:
    wants_commit = is_commit
    for _ in range(TRIES_MAX):
        try:
            if wants_commit:
                producer.commit_transaction(CALL_SECONDS)
            else:
                producer.abort_transaction(CALL_SECONDS)
        except TransactionError as error:
            if error.decided is not None:
                return (COMMITTED if error.decided == "commit" else ABORTED), False
            if error.abort_required:
                wants_commit = False
                continue
            if error.retriable:
                continue
            return _outcome_without(is_commit=is_commit), True
        except TidelogError:
            return _outcome_without(is_commit=is_commit), True
        return (COMMITTED if wants_commit else ABORTED), False
    return _outcome_without(is_commit=is_commit), True


def _outcome_without(*, is_commit: bool) -> str:
    """Of an end that nobody has confirmed: what was never asked to commit cannot have."""
    return UNKNOWN if is_commit else ABORTED
