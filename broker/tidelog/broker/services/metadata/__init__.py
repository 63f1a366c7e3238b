"""GetMetadata, the export, and the methods of a node without a broker."""
