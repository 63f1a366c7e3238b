"""DescribeLogDirs, asked of one broker or of all."""
