"""`tidelog txn`: transactions."""
