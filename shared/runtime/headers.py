"""The headers of a message, as they came and as they are read.

Few messages of the log have a header that anybody asks for, and reading them all is a sixth of a load.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any


def parse(raw: bytes) -> dict[str, str]:
    """What stands behind the first line, which has the version, and a status where there is one."""
    lines = raw.decode(errors="replace").split("\r\n")[1:]
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines) if name}


def any_of(*names: str) -> re.Pattern[bytes]:
    """What finds the line of a header with one of these names, or a longer one, in raw headers."""
    return re.compile(b"\n(?:%b)" % "|".join(names).encode())


class RawHeaders(Mapping[str, str]):
    """Read when somebody asks for one that may be among them."""

    __slots__ = ("_read", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._read: dict[str, str] | None = None

    def _parsed(self) -> dict[str, str]:
        if self._read is None:
            self._read = parse(self.raw)
        return self._read

    def __getitem__(self, name: str) -> str:
        if self._read is None and name.encode() not in self.raw:
            raise KeyError(name)
        return self._parsed()[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        if self._read is None and name.encode() not in self.raw:
            return default
        return self._parsed().get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parsed())

    def __len__(self) -> int:
        return len(self._parsed())
