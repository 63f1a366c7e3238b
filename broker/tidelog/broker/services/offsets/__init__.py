"""ListOffsets and DeleteRecords."""
