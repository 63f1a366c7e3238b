"""The value that every decision of the controller is: records to propose, and what to answer.

Owns the shape only. A decision is made against one image and holds for that image: the caller
proposes the records before it decides anything else, or decides again.
"""

from typing import Generic, TypeVar

import msgspec

from tidelog.metadata.records.entries import MetadataRecord

AnswerT = TypeVar("AnswerT")


class Decision(msgspec.Struct, Generic[AnswerT], frozen=True, kw_only=True):
    """What is to be written, and what the caller is told once it is committed."""

    records: tuple[MetadataRecord, ...] = ()
    """They take effect together. Empty: nothing changes, and the answer can be given at once."""
    answer: AnswerT
    warnings: tuple[str, ...] = ()
    """What was done although it is not as good as it should be: one sentence each."""

    def dry(self) -> "Decision[AnswerT]":
        """The same answer with nothing to write: what `validate_only` asks for."""
        return Decision(records=(), answer=self.answer, warnings=self.warnings)
