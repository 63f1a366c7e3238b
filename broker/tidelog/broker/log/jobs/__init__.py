"""Jobs on segments that the worker's process runs: sealing, scrubbing, compaction."""
