"""Transactions as clients, operators and other brokers call them."""
