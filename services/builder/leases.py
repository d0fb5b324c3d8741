"""Leases: who has a worker, until when, and when it is lost. Pure; the records are the only memory.

A lease ends at `expires_at`. Hearing of it moves that on: a renewal is a new version of the record, a heartbeat of the
worker that carries the lease's token counts for as long as this instance leads. Nobody is held silent for a time in
which nobody listened: a term begins with a whole TTL for everybody.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from shared.errors import SteerError
from shared.model.base import compact
from shared.model.build import BuildPool
from shared.model.build_worker import BuildWorker, LeaseRequest, WorkerLease
from shared.subjects import Key

AT_ONCE = timedelta(seconds=5)
NONE_FREE = "no unleased worker was found"
_NOBODYS = compact(WorkerLease())


@dataclass(frozen=True, slots=True)
class Heard:
    """The last heartbeat of a worker: the token of what it works on, and when it was received."""

    token: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Hearing:
    """What is known of a worker by telemetry: its last heartbeat, and since when anybody listens."""

    heard: Heard | None
    attended_at: datetime | None

    def ends(self, lease: WorkerLease, ttl: timedelta) -> datetime | None:
        """When the lease ends if nothing more is heard; None without a lease."""
        if not lease.token:
            return None
        times = [lease.expires_at] if lease.expires_at is not None else []
        if self.attended_at is not None:
            times.append(self.attended_at + ttl)
        if self.heard is not None and self.heard.token == lease.token:
            times.append(self.heard.at + ttl)
        return max(times, default=lease.leased_at)

    def silent_at(self, worker: BuildWorker, changed_at: datetime, ttl: timedelta) -> datetime | None:
        """When a worker that owes heartbeats counts as silent. It owes none before it runs."""
        if not worker.takes_orders or worker.phase != "running" or self.attended_at is None:
            return None
        last = self.heard.at if self.heard is not None else self.attended_at
        return max(last, self.attended_at, changed_at) + ttl

    def observation(self) -> Mapping[str, Any]:
        """What a decision that rested on this has to record."""
        found: dict[str, Any] = {}
        if self.attended_at is not None:
            found["attended_at"] = self.attended_at
        if self.heard is not None:
            found |= {"heard_at": self.heard.at, "heard_token": self.heard.token}
        return found


def lost(lease: WorkerLease, worker: BuildWorker | None, deleted: bool, ends: datetime | None, now: datetime) -> str:
    """Why the holder of a lease cannot count on the worker any more; empty while it can."""
    if deleted:
        return "the worker is gone"
    if worker is not None:
        if worker.phase in ("failed", "succeeded"):
            return f"the worker has {'failed' if worker.phase == 'failed' else 'ended'}"
        if lease.worker_created_at is not None and worker.created_at != lease.worker_created_at:
            return "the worker was started anew"
    if ends is not None and ends <= now:
        return "nothing was heard of it until the lease ended"
    return ""


def asks(request: LeaseRequest, now: datetime) -> bool:
    """Whether somebody still waits for the answer. One that does not want to wait is served in the next pass, or not."""
    if request.deadline == request.requested_at:
        return now < request.requested_at + AT_ONCE
    return now < min(request.deadline, request.expires_at)


def token(what: str, attempt: int, sequence: int) -> str:
    """16 hex digits that belong to one attempt of one build, or to one lease, and are never given out again.

    `sequence` is the highest one known when it was decided, which only grows.
    """
    return sha256(f"{what}\n{attempt}\n{sequence}".encode()).hexdigest()[:16]


def address(name: str, worker: BuildWorker, pool: BuildPool) -> str:
    """Where a client reaches the worker."""
    if worker.address:
        return worker.address
    host = f"{name}.{pool.service_name}" if pool.service_name else name
    return f"tcp://{host}:{pool.port}"


def check_address(text: str) -> str:
    """An address as a lease has it. Raises `SteerError` for what is no absolute URI with a host."""
    try:
        parts = urlsplit(text)
        fine = bool(parts.scheme and parts.hostname and "://" in text)
    except ValueError:
        fine = False
    if not fine:
        raise SteerError(f"address {text!r}: an absolute URI with its scheme and a host is wanted, as tcp://host:port")
    return text


def released(lease: WorkerLease, pool: BuildPool, now: datetime) -> WorkerLease:
    """The worker is free, for as long as the pool keeps it; what it has in its cache, and who had it last, stays."""
    return _NOBODYS.replaced(
        idle_until=now + timedelta(seconds=pool.max_idle_seconds),
        cache_key=lease.cache_key,
        last_owner=lease.last_owner,
        served_at_sequence=lease.served_at_sequence,
    )


def granted(owner: str, name: str, worker: BuildWorker, pool: BuildPool, token: str, now: datetime) -> WorkerLease:
    """The worker is this owner's until the TTL passes."""
    return _NOBODYS.replaced(
        owner=owner,
        token=token,
        leased_at=now,
        expires_at=now + timedelta(seconds=pool.lease_ttl_seconds),
        address=address(name, worker, pool),
        worker_created_at=worker.created_at,
    )


def ttl(pool: BuildPool) -> timedelta:
    return timedelta(seconds=pool.lease_ttl_seconds)


def named(key: Key) -> str:
    """`pool/worker`, as requests name a worker."""
    return "/".join(key)
