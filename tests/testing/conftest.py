"""Marks of the ports' contract tests, which run on the kit's disk as well."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Known also when only this folder is run."""
    config.addinivalue_line("markers", "needs(*abilities): what the world must be able to do")
