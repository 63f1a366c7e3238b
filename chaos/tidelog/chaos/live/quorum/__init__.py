"""Cases of the metadata quorum."""
