"""The values that users hand in and get back."""
