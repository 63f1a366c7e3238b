"""Groups with cores alone: coordinators over a replicated log, members, what befalls them."""
