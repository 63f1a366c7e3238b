"""pyarrow's modules, which come without types: only who was asked for Arrow imports this.

Owns that their values are `Any` in one place, instead of unknown in many.
"""

import importlib
from typing import Any, Final

pa: Final[Any] = importlib.import_module("pyarrow")
pc: Final[Any] = importlib.import_module("pyarrow.compute")
