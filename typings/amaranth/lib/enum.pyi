# Members of an Amaranth enum are members; the class takes the keyword `shape`.
import enum as _python
from typing import Any

class Enum(_python.Enum):
    def __init_subclass__(cls, *, shape: Any = ..., view_class: Any = ...) -> None: ...

class IntEnum(_python.IntEnum):
    def __init_subclass__(cls, *, shape: Any = ..., view_class: Any = ...) -> None: ...

class Flag(_python.Flag):
    def __init_subclass__(cls, *, shape: Any = ..., view_class: Any = ...) -> None: ...

class IntFlag(_python.IntFlag):
    def __init_subclass__(cls, *, shape: Any = ..., view_class: Any = ...) -> None: ...
