"""What calls of the contract carry, as values that client and broker share. Pure."""
