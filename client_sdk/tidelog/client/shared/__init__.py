"""What threads and asyncio share."""
