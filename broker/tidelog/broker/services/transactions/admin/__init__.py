"""TransactionAdminService, on every broker, and what brokers ask each other for it."""
