"""How large the quorum's numbers may become: terms, indexes, rounds, positions. Pure.

Everything that holds such a number (the wire, the journal, a snapshot's head) holds 64 bits. What a
member takes from another, or finds in its own files, ends two bits below: whatever is added to it
afterwards still fits, so that no number of a stranger's can stop a member in the middle of a step.

No real quorum comes near: one election a millisecond takes 146 million years to spend the terms.
Only a forged message can do it, hence `is_step_sane`: a term that is further ahead than elections
can ever have carried it is passed over, like a message that was lost. A member that has no term yet
takes every term up to the bound; it has to begin somewhere.
"""

from typing import Final

from tidelog.wire.ids import Term

NUMBER_MAX: Final = 1 << 62
"""The largest number that is taken; also the last term in which anybody may lead."""
TERM_STEP_MAX: Final = 1 << 32
"""How many terms a member can have missed: an election a second for 136 years."""


def is_step_sane(own: Term, other: Term) -> bool:
    """Whether elections can have led from this member's term to the other's."""
    return other <= NUMBER_MAX and (own == 0 or other <= own + TERM_STEP_MAX)
