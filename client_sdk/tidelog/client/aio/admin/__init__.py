"""The admin client for asyncio."""
