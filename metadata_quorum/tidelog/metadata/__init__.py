"""The model of the metadata that every room reads: image, records, settings, refusals. Pure."""
