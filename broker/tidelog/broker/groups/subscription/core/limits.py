"""What the easy path admits, each bound with its reason. Pure."""

from typing import Final

STREAMS_MAX: Final = 1_000
"""Streams of one broker: each is a member of a group, and reads."""
CREDIT_MAX: Final = 100_000
"""Records that may be sent, as the contract says."""
UNACKNOWLEDGED_MAX: Final = 100_000
"""Records sent and not acknowledged; beyond it nothing more is sent until some are."""
ACKNOWLEDGEMENTS_WAITING_MAX: Final = 1_000
"""Of one stream: a client that sends more without waiting for answers is not reading them."""
POSITIONS_WAITING_MAX: Final = 100_000
"""Of all these together: each of them may have to be answered with an error, which is kept."""
ANSWERS_WAITING_MAX: Final = 20_000
"""Answers to acknowledgements, and failures in them, that the client has not taken: beyond it the
next acknowledgement ends the stream. What is on its way to be stored may still come on top."""
POSITIONS_MAX: Final = 10_000
"""Of one acknowledgement: as many as a commit may have."""
TOPICS_MAX: Final = 1_000
DELETED_MAX: Final = 1_000
"""Deleted topics of which a stream remembers the names, to say so of what comes of them."""
ACKNOWLEDGE_MS_DEFAULT: Final = 300_000
ACKNOWLEDGE_MS_MIN: Final = 1_000
ACKNOWLEDGE_MS_MAX: Final = 24 * 60 * 60 * 1000
GIVING_UP_MS: Final = 60_000
"""How much later than the client's time the coordinator's is over: first the stream ends."""
FINISH_MS: Final = 5_000
"""How long a stream whose client has ended its sending waits for its commits and their answers."""
TOPICS_MS: Final = 2_000
"""How long a topic may be unknown that a client names: another broker may have made it just now."""
NOT_READY_MS: Final = 10_000
"""How long a stream may have nothing to tell its client, because it is no member or does not know
where to begin: then it ends and says what is missing."""
UNDECIDED_MS: Final = 60_000
"""How long one partition of a stream that reads others may wait for a transaction to be decided:
then the stream ends and names it."""
NOT_STORED_MS: Final = 10_000
"""How long no acknowledgement may come to be stored before the first is answered with what is
missing."""
RETRY_MS: Final = 200
"""After a failure that another try may mend."""
BUFFER_BYTES_MAX: Final = 1024 * 1024
"""Records read ahead for one stream: beyond it no read begins; one a leader may be under way."""
ANSWER_BYTES_MAX: Final = 1024 * 1024
"""Records in one answer, unless a single one is larger."""
READ_WAIT_MS: Final = 5_000
"""How long a read waits at a leader for the first record."""
