"""The simulated loop, its trace, and what goes wrong by chance."""
