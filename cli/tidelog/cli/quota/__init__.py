"""Commands about quotas."""
