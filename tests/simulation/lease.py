"""The leader lease: a key with a time to live, taken and renewed by compare-and-set. It says who tries to lead."""

from dataclasses import dataclass

from .clock import Timeline


@dataclass(slots=True)
class _Held:
    holder: str
    revision: int
    expires: float


class Leases:
    """One key per service. Every write gives the bucket's next revision; an expired key is free."""

    def __init__(self, timeline: Timeline, ttl_seconds: float) -> None:
        self._timeline = timeline
        self._held: dict[str, _Held] = {}
        self._revision = 0
        self.ttl_seconds = ttl_seconds

    def acquire(self, service: str, holder: str) -> int | None:
        """The revision, or None while somebody holds it (a process that crashed holds its own until it expires)."""
        held = self._held.get(service)
        if held is not None and self._timeline.seconds < held.expires:
            return None
        return self._write(service, holder)

    def renew(self, service: str, revision: int) -> int | None:
        """The new revision, or None if the lease has gone to another or has expired."""
        held = self._held.get(service)
        if held is None or held.revision != revision or self._timeline.seconds >= held.expires:
            return None
        return self._write(service, held.holder)

    def release(self, service: str, revision: int) -> None:
        held = self._held.get(service)
        if held is not None and held.revision == revision:
            del self._held[service]

    def _write(self, service: str, holder: str) -> int:
        self._revision += 1
        self._held[service] = _Held(holder, self._revision, self._timeline.seconds + self.ttl_seconds)
        return self._revision
