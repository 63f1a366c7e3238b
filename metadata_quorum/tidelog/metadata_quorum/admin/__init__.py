"""Administrative calls that the active controller answers."""
