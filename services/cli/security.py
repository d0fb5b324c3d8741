"""Who may do what on the bus: one role for each identity, as the subjects that it may publish and subscribe to. Pure.

Everything is derived: from the owners of the kinds, from what each service says it reads, keeps and owns, from what an
agent follows. A role gets what its process does, and nothing else:

* a service writes what it owns and what it keeps, under its own term; only the scheduler, which keeps the log, may purge
* a doer writes the subjects that carry its name, and reads by consumers with one filter each, whose create subject
  carries the filter; consumers with several filters, whose subject carries none, are for those who may read everything
* users write the kinds that users own; a viewer writes nothing
* an operator makes the streams and completes them after an upgrade, and takes nodes out of service. Services find the
  streams made. Nobody may delete a stream, or a message of one

Answers go to inboxes that carry the public key of who asked (`_INBOX.<key>.…`), and nobody else may listen there.
Services publish to any inbox instead of being given `allow_responses`: that would let them publish to whatever subject a
request names for its answer, the API of JetStream included, which no denial overrides.

What the server cannot divide: whoever may follow a stream may ask for its state, in which the names of its subjects can
be seen, not what is in them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from services.agent import reads as agent_reads
from services.builder.service import service as builder
from services.pooler.service import service as pooler
from services.routes.service import service as routes
from services.scheduler.service import service as scheduler
from shared import subjects
from shared.errors import ConfigurationError
from shared.model.base import NAME_PATTERN
from shared.runtime import streams
from shared.runtime.credentials import INBOX
from shared.runtime.keeper import KEEPER
from shared.service import Service
from shared.subjects import KINDS, LEASE_BUCKET, SNAPSHOT_STREAM, STREAM, Kind, Owner

API = "$JS.API"
LEASES = f"KV_{LEASE_BUCKET}"
SERVICES: tuple[Service[Any], ...] = (scheduler(), pooler(), builder(), routes())
EVERY_STREAM = tuple(str(each["name"]) for each in streams.DECLARATIONS)
PEOPLE = ("operator", "user", "viewer")


@dataclass(frozen=True, slots=True)
class Role:
    """`name` is that of the identity: `scheduler`, `agent.n1`, `worker.default.w0`. Its own inbox comes on top."""

    name: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...] = ()

    def subscriptions(self, public_key: str) -> tuple[str, ...]:
        return (f"{INBOX}.{public_key}.>", *self.subscribe)


def role_of(name: str) -> Role:
    """The role of an identity. Raises `ConfigurationError` for a name that is none."""
    kind, *names = name.split(".")
    if not all(re.fullmatch(NAME_PATTERN[1:-1], each) for each in names):
        raise ConfigurationError(f"{name!r}: {'.'.join(names)!r} is no name (a-z, 0-9 and -, at most 63 characters)")
    match kind, names:
        case ("agent", [node]):
            return _agent(name, node)
        case ("proxy", [proxy]):
            return _proxy(name, proxy)
        case ("worker", [pool, worker]):
            return _worker(name, pool, worker)
        case ("scaler", [pool]):
            return _scaler(name, pool)
        case ("sweeper", []):
            return _sweeper(name)
        case ("operator", []):
            return _operator(name)
        case ("user", []):
            return Role(name, (*_looking(), *_all_of(_owned_by(Owner.USERS)), *_asking(with_commands=True)))
        case ("viewer", []):
            return Role(name, (*_looking(), *_asking(with_commands=False)))
        case (_, []):
            for service in SERVICES:
                if service.name == kind:
                    return _service(service)
    raise ConfigurationError(f"{name!r} is no role: a service, agent.<node>, proxy.<name>, worker.<pool>.<worker>, …")


def _service(service: Service[Any]) -> Role:
    name = service.name
    written = dict.fromkeys((*service.owns, *service.keeps, *service.deletes))
    publish = [
        *_all_of(written),
        subjects.TERM.subject(name),
        subjects.DECISION.subject(name, ">"),
        subjects.NOTICE.subject(name, ">"),
        *(subjects.rejected(kind.subject_filter) for kind in service.keeps),
        f"$KV.{LEASE_BUCKET}.{name}",
        *(f"{API}.STREAM.INFO.{stream}" for stream in EVERY_STREAM),
        *_following_anything(STREAM),
        *_following(LEASES, f"$KV.{LEASE_BUCKET}.{name}"),
        f"{API}.STREAM.MSG.GET.{STREAM}",
        f"{API}.STREAM.MSG.GET.{LEASES}",
        f"{INBOX}.>",
    ]
    if subjects.ROUTE_MANIFEST in service.owns:
        publish += [subjects.SNAPSHOT_SUBJECTS, f"{API}.STREAM.MSG.GET.{SNAPSHOT_STREAM}"]
    if name == KEEPER:
        publish.append(f"{API}.STREAM.PURGE.{STREAM}")
    listens = [
        subjects.api(name, "*"),
        *(subjects.live_filter(source) for source in service.observes),
        "$SRV.*",
        *(f"$SRV.*.{named}{each}" for named in (f"steer-{name}", f"steer-{name}-leader") for each in ("", ".*")),
    ]
    return Role(name, _unique(publish), tuple(listens))


def _agent(name: str, node: str) -> Role:
    own = _carrying(Owner.AGENT, node)
    followed = _following(STREAM, *agent_reads.all_of(node))
    return Role(name, _unique((*own, *_reading(own), *followed, subjects.live_node(node))))


def _proxy(name: str, proxy: str) -> Role:
    """It follows the routes, or reads the whole snapshot, says what it serves, and wakes what is asleep."""
    own = _carrying(Owner.PROXY, proxy)
    followed = _following(STREAM, subjects.ROUTE_SUBJECTS)
    snapshot = f"{API}.DIRECT.GET.{SNAPSHOT_STREAM}.{subjects.SNAPSHOT_SUBJECTS}"
    return Role(name, _unique((*own, *_reading(own), *followed, snapshot, subjects.live_proxy(proxy))))


def _worker(name: str, pool: str, worker: str) -> Role:
    own = _carrying(Owner.BUILD_WORKER, pool, worker)
    reports = subjects.BUILD_REPORT.subject(pool, worker, "*")
    publish = (
        *own,
        *_reading((*own, subjects.BUILD_POOL.subject(pool))),
        *_following(STREAM, subjects.BUILD_ORDER.subject(pool, worker), reports),
        subjects.live_build(pool, worker),
        subjects.LOG_SUBJECTS,  # a line carries the build's name, not the worker's
    )
    return Role(name, _unique(publish))


def _scaler(name: str, pool: str) -> Role:
    """It starts and ends the workers of a pool on its machine, which have its identity."""
    workers = _worker(name, pool, "*").publish
    return Role(name, _unique((*workers, *_following(STREAM, subjects.WORKER_SCALE.subject(pool)))))


def _sweeper(name: str) -> Role:
    own = _all_of(_owned_by(Owner.SWEEPER))
    return Role(name, _unique((*own, *_following(STREAM, *own, *_all_of((subjects.IMAGE_SWEEP,))))))


def _operator(name: str) -> Role:
    publish = (
        *_looking(),
        *_asking(with_commands=True),
        *_all_of((*_owned_by(Owner.USERS), subjects.NODE)),
        *(f"{API}.STREAM.{verb}.{stream}" for verb in ("CREATE", "UPDATE") for stream in EVERY_STREAM),
        "$SRV.>",
    )
    return Role(name, _unique(publish))


def _looking() -> tuple[str, ...]:
    """Reading everything that there is: the world holds no secrets."""
    publish = [f"{API}.INFO", f"{API}.STREAM.NAMES", f"{API}.STREAM.LIST"]
    for stream in EVERY_STREAM:
        publish += _following_anything(stream)
        publish += [f"{API}.STREAM.MSG.GET.{stream}", f"{API}.DIRECT.GET.{stream}", f"{API}.DIRECT.GET.{stream}.>"]
    return tuple(publish)


def _asking(*, with_commands: bool) -> tuple[str, ...]:
    """The endpoints of the services: those that only read, or all."""
    verbs = ((each.name, [*each.queries, *(each.commands if with_commands else ())]) for each in SERVICES)
    return tuple(subjects.api(name, verb) for name, of_it in verbs for verb in of_it)


def _following(stream: str, *filters: str) -> tuple[str, ...]:
    """The rights to follow some subjects of a stream. The name of a consumer ends with digits that it makes up."""
    create = (f"{API}.CONSUMER.CREATE.{stream}.*.{each}" for each in filters)
    return f"{API}.STREAM.INFO.{stream}", f"$JS.FC.{stream}.>", *create


def _following_anything(stream: str) -> tuple[str, ...]:
    return f"{API}.STREAM.INFO.{stream}", f"$JS.FC.{stream}.>", f"{API}.CONSUMER.CREATE.{stream}.>"


def _reading(own: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{API}.DIRECT.GET.{STREAM}.{subject}" for subject in own)


def _carrying(owner: Owner, *names: str) -> tuple[str, ...]:
    """The subjects of a doer's kinds that begin with its name."""
    rest = ((kind, len(kind.tokens) - len(names)) for kind in _owned_by(owner))
    return tuple(kind.subject(*names, *["*"] * more) for kind, more in rest)


def _owned_by(owner: Owner) -> tuple[Kind, ...]:
    return tuple(kind for kind in KINDS if kind.owner is owner)


def _all_of(kinds: Iterable[Kind]) -> tuple[str, ...]:
    return tuple(kind.subject_filter for kind in kinds)


def _unique(publish: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(publish))
