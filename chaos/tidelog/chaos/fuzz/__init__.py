"""Generated and mutated bytes, seeded, for whatever reads what a peer or a disk hands in."""
