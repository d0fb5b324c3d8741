"""The routes as a follower holds them: pure but for the cache file.

`RouteTable` takes messages in the order of the log: records wait until their manifest, then become part of the table,
whose digest is kept alongside. `RouteVersion` is what a consumer gets: a whole, that nothing changes any more.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

import orjson
import structlog
from pydantic import BaseModel

from shared import codec, route_digest, subjects
from shared.errors import InvalidRecord, InvalidSubject
from shared.model.route import FunctionRoute, HostRoutes, HTTPRoute, InternalService, L4Route, RouteManifest
from shared.runtime.encode import is_tombstone
from shared.runtime.follower import Message
from shared.subjects import Kind

log = structlog.get_logger(__name__)

R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Entry:
    """One route record: as published, as understood (None: it cannot be read), and what it adds to the digest."""

    body: bytes
    record: BaseModel | None
    term: int


@dataclass(frozen=True, slots=True)
class RouteVersion:
    """One version of all routes. `changed` are the subjects that differ from the version given before it.

    `initial` marks the first one given; its `changed` is everything.
    """

    number: int
    digest: str
    entries: Mapping[str, Entry]
    hosts: Mapping[str, HostRoutes]
    l4: Mapping[int, L4Route]
    internal: Mapping[str, InternalService]
    functions: Mapping[str, FunctionRoute]
    changed: tuple[str, ...]
    initial: bool


class RouteTable:
    """What was received. `number` is the last manifest's, 0 before the first."""

    def __init__(self) -> None:
        self.number = 0
        self.verified = False
        self._closed = ""
        self._digest = 0
        self._waiting: dict[str, Message] = {}
        self._entries: dict[str, Entry] = {}

    @property
    def empty(self) -> bool:
        """Nothing was ever published."""
        return not self._closed and not self._waiting and not self._entries

    @property
    def broken(self) -> bool:
        """A closed version whose digest is not its manifest's, and no other version has begun."""
        return bool(self._closed) and not self.verified and not self._waiting
