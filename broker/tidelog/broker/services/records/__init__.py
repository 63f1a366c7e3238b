"""ProduceRecords and FetchRecords for clients that encode no batches."""
