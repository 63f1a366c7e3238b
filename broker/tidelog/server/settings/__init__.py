"""The settings of a node: their list, their files, their checks."""
