"""The parts of a node: broker, controller, and what connects them."""
