"""The real kafka-python, whose import warns of what Python will not have one day."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.admin
    import kafka.errors
    import kafka.structs

__all__ = ["kafka"]
