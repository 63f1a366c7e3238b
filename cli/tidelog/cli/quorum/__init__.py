"""Commands about the metadata quorum."""
