# What the type checker is told of Amaranth, which has no annotations of its own: everything is Any, except enums.
from typing import Any

def __getattr__(name: str) -> Any: ...
