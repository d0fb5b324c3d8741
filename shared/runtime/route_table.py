"""The routes as a follower holds them: pure but for the cache file.

`RouteTable` takes messages in the order of the log: records wait until their manifest, then become part of the table,
whose digest is kept alongside. `RouteVersion` is what a consumer gets: a whole, that nothing changes any more.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson
import structlog
from pydantic import BaseModel

from shared import codec, route_digest, subjects
from shared.errors import InvalidRecord, InvalidSubject
from shared.model.route import FunctionRoute, HostRoutes, HTTPRoute, InternalService, L4Route, RouteManifest
from shared.runtime import parts
from shared.runtime.encode import is_tombstone
from shared.runtime.follower import Message
from shared.runtime.shared_map import SharedMap
from shared.subjects import ROUTE_MANIFEST

log = structlog.get_logger(__name__)


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

    def record(self, subject: str) -> BaseModel | None:
        """What a record says; None where it is gone, or cannot be read."""
        found = self.entries.get(subject)
        return found.record if found is not None else None


class RouteTable:
    """What was received. `number` is the last manifest's, 0 before the first; `verified`, whether its digest agreed."""

    def __init__(self) -> None:
        self.number = 0
        self.verified = False
        self._closed = ""
        self._digest = 0
        self._waiting: list[Message] = []
        self._entries: SharedMap[str, Entry] = SharedMap()
        self._hosts: SharedMap[str, HostRoutes] = SharedMap()
        self._l4: SharedMap[int, L4Route] = SharedMap()
        self._internal: SharedMap[str, InternalService] = SharedMap()
        self._functions: SharedMap[str, FunctionRoute] = SharedMap()
        self._touched: set[str] = set()
        self._given: RouteVersion | None = None

    @property
    def empty(self) -> bool:
        """Nothing was ever published."""
        return not self._closed and not self._waiting and not self._entries

    @property
    def broken(self) -> bool:
        """A closed version whose digest is not its manifest's, and no other version has begun."""
        return bool(self._closed) and not self.verified and not self._waiting

    def take(self, message: Message) -> bool:
        """Take one message; True if it was a manifest that could be read, and so closed a version."""
        if message.subject != ROUTE_MANIFEST.subject():
            self._waiting.append(message)
            return False
        try:
            manifest = codec.decode(ROUTE_MANIFEST, (), message.body)
        except InvalidRecord as error:
            log.warning("a manifest cannot be read", sequence=message.sequence, error=str(error))
            return False
        assert isinstance(manifest, RouteManifest)
        for waiting in self._waiting:
            body = b"" if is_tombstone(waiting.headers) else waiting.body
            self._put(waiting.subject, entry(waiting.subject, body) if body else None)
        self._waiting.clear()
        self.number, self._closed = manifest.version, manifest.digest
        self.verified = route_digest.text(self._digest) == manifest.digest
        return True

    def version(self, before: RouteVersion | None) -> RouteVersion | None:
        """The version in the table, as it differs from the one given before; None where it is the same."""
        digest = route_digest.text(self._digest)
        if before is not None and (before.number, before.digest) == (self.number, digest):
            return None
        changed = self._touched if before is not None and before is self._given else self._difference(before)
        self._touched = set()
        self._given = RouteVersion(
            number=self.number,
            digest=digest,
            entries=self._entries.copy(),
            hosts=self._hosts.copy(),
            l4=self._l4.copy(),
            internal=self._internal.copy(),
            functions=self._functions.copy(),
            changed=tuple(sorted(changed)),
            initial=before is None,
        )
        return self._given

    def _difference(self, before: RouteVersion | None) -> set[str]:
        old = before.entries if before is not None else {}
        gone = old.keys() - self._entries.keys()
        return gone | {name for name, each in self._entries.items() if name not in old or old[name].term != each.term}

    def _put(self, subject: str, after: Entry | None) -> None:
        before = self._entries.drop(subject)
        self._digest = route_digest.moved(self._digest, before.term if before else 0, after.term if after else 0)
        self._touched.add(subject)
        if before is not None and before.record is not None:
            self._unlist(before.record)
        if after is not None:
            self._entries.put(subject, after)
            if after.record is not None:
                self._list(after.record)

    def _list(self, record: BaseModel) -> None:
        match record:
            case HostRoutes():
                self._hosts.put(record.hostname, record)
            case L4Route():
                self._l4.put(record.public_port, record)
            case InternalService():
                self._internal.put(record.environment, record)
            case FunctionRoute():
                self._functions.put(f"{record.namespace}/{record.function}", record)

    def _unlist(self, record: BaseModel) -> None:
        match record:
            case HostRoutes():
                self._hosts.drop(record.hostname)
            case L4Route():
                self._l4.drop(record.public_port)
            case InternalService():
                self._internal.drop(record.environment)
            case FunctionRoute():
                self._functions.drop(f"{record.namespace}/{record.function}")


def entry(subject: str, body: bytes) -> Entry:
    """A record that cannot be read still counts in the digest, but routes nothing."""
    try:
        record = parts.read(*subjects.parse(subject), body)
    except (InvalidRecord, InvalidSubject) as error:
        log.warning("a route record cannot be read", subject=subject, error=str(error))
        record = None
    return Entry(body, record, route_digest.term(subject, body))


def match(version: RouteVersion, host: str, path: str) -> HTTPRoute | None:
    """The route of a request: the exact host before the wildcard one, the longest prefix first, by whole segments.

    `host` may carry a port and be in any case; `*.example.com` takes one label. None = 404.
    """
    name = (host if host.endswith("]") else host.rpartition(":")[0] or host).lower().rstrip(".")
    for candidate in (name, "*." + name.partition(".")[2]):
        found = version.hosts.get(candidate)
        for route in found.routes if found is not None else ():
            prefix = route.path_prefix
            if not prefix or path == prefix or path.startswith(f"{prefix}/"):
                return route
    return None


# -- the cache file -----------------------------------------------------------------------------------------------------


def write_cache(path: Path, version: RouteVersion) -> int:
    """Replace the file at once, so that a crash leaves the old one or the new one. Returns its size in bytes.

    The records are written one by one: encoding all of them at once would hold up whatever else the process does.
    """
    beside = path.with_name(f".{path.name}.new")
    with beside.open("wb") as file:
        file.write(b'{"version":%d,"digest":%b,"records":{' % (version.number, orjson.dumps(version.digest)))
        separator = b""
        for subject, each in version.entries.items():
            file.write(b"%b%b:%b" % (separator, orjson.dumps(subject), orjson.dumps(each.body.decode())))
            separator = b",\n"
        file.write(b"}}\n")
        size = file.tell()
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    return size


def read_cache(path: Path) -> RouteVersion | None:
    """What the file holds; None where there is none, or its records do not have the digest that it names."""
    try:
        content = orjson.loads(path.read_bytes())
        number, digest = int(content["version"]), str(content["digest"])
        bodies = {str(subject): str(body).encode() for subject, body in content["records"].items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("the cache of routes cannot be read", path=str(path), error=str(error) or type(error).__name__)
        return None
    table = RouteTable()
    for subject, body in bodies.items():
        table._put(subject, entry(subject, body))
    table.number = number
    version = table.version(None)
    if version is None or version.digest != digest:
        log.warning("the cache of routes is not whole", path=str(path))
        return None
    return version
