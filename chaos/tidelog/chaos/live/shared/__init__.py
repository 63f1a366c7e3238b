"""What every live case is told, and what it answers."""
