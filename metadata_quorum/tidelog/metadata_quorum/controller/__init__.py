"""What the active controller decides: (image, request) → records to propose, or a typed refusal."""
