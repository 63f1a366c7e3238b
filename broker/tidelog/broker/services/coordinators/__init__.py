"""CoordinatorService: which broker coordinates a group or a transactional id."""
