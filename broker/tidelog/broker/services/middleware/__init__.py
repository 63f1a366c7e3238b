"""What every call passes: access, metering, quotas."""
