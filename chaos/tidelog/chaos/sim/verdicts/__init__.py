"""What a run of a seed tells, and checks that several suites share."""
