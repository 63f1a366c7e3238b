"""The SDK's own clients, drivers included, on a simulated cluster; see `suites.clients`."""
