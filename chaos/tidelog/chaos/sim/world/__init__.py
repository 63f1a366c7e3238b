"""The simulated world: processes, their places, and what befalls them."""
