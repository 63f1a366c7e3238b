"""What both producers share."""
