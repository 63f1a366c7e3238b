"""Commands about log files."""
