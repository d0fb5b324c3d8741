"""What is placed: a workload's key, what one replica runs and reserves, and where it may go.

Nothing below this module knows whether a workload is an environment or a pool. A `Template` is made from a release once
and says everything that a replica of it needs; `assignment` stamps one out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256

from services.scheduler.placement import Request
from shared.codec import config_hash
from shared.model.assignment import Assignment, WorkloadRef
from shared.model.base import compact
from shared.model.release import Release
from shared.model.run import Resources, RunSpec
from shared.subjects import Key

_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_DIGITS = [first + second for first in _BASE32 for second in _BASE32]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Records made of what is valid already are copies of these: to validate them again costs five times as much.
_ENVIRONMENT = compact(WorkloadRef(kind="environment", key=""))
_REPLICA = compact(
    Assignment(
        workload=_ENVIRONMENT, run=RunSpec(), config_hash="", resources=Resources().effective(), created_at=EPOCH
    )
)


@dataclass(frozen=True, slots=True)
class Template:
    """One release of a workload, ready to be placed. `name` begins the ids of its assignments: the app, or the runtime.

    `prototype` is a replica of it but for what differs from one to the next.
    """

    name: str
    release: str
    request: Request
    prototype: Assignment
    stateful: bool = False

    @property
    def volumes(self) -> tuple[str, ...]:
        return tuple(mount.name for mount in self.prototype.run.volumes)

    def assignment(
        self,
        deployment: str,
        slot: int,
        incarnation: int,
        now: datetime,
        *,
        attempt: int = 0,
        not_before: datetime | None = None,
        replaces: str = "",
        reason: str = "",
    ) -> tuple[str, Assignment]:
        """The id and the record of a new replica. Equal arguments give an equal id."""
        record = self.prototype.replaced(
            deployment=deployment,
            slot=slot,
            incarnation=incarnation,
            volume_epoch=incarnation if self.prototype.run.volumes else 0,
            created_at=now,
            attempt=attempt,
            not_before=not_before,
            replaces=replaces,
            reason=reason,
        )
        return assignment_id(self.name, self.request.workload, deployment, slot, incarnation), record


def make_template(
    ref: WorkloadRef,
    name: str,
    release: str,
    run: RunSpec,
    resources: Resources,
    *,
    constraints: Mapping[str, str] | None = None,
    platforms: tuple[str, ...] = (),
    distinct_nodes: bool = False,
    stateful: bool = False,
) -> Template:
    """A template of any workload."""
    resources = resources.effective()
    return Template(
        name=name,
        release=release,
        request=Request(
            workload=workload_id(ref),
            cpu_millis=resources.cpu_millis,
            memory_mb=resources.memory_mb,
            constraints=tuple(sorted((constraints or {}).items())),
            platforms=platforms,
            distinct_nodes=distinct_nodes,
        ),
        prototype=_REPLICA.replaced(
            workload=ref,
            release=release,
            run=run,
            config_hash=config_hash(run, resources),
            resources=resources,
        ),
        stateful=stateful,
    )


def workload_id(ref: WorkloadRef) -> str:
    return f"{ref.kind}/{ref.key}"


def environment_ref(environment: Key) -> WorkloadRef:
    return _ENVIRONMENT.replaced(key="/".join(environment))


def template(environment: Key, version: str, release: Release, image: str, platforms: tuple[str, ...]) -> Template:
    """What a replica of a release runs. `image` and `platforms` are the resolved ones, of a build where there was one."""
    spec = release.service
    return make_template(
        environment_ref(environment),
        environment[1],
        version,
        spec.run.with_image(image),
        spec.resources,
        constraints=spec.placement.constraints,
        platforms=platforms,
        distinct_nodes=spec.placement.distinct_nodes,
        stateful=spec.stateful,
    )


def assignment_id(name: str, workload: str, deployment: str, slot: int, incarnation: int) -> str:
    """`<at most 40 characters of the name>-<10 base32 digits of SHA-256(workload, deployment, slot, incarnation)>`."""
    material = f"{workload}\0{deployment}\0{slot}\0{incarnation}".encode()
    number = int.from_bytes(sha256(material).digest()[:7], "big") >> 6
    first, last = number >> 30, number & 0x3FFFFFFF
    digits = _DIGITS[first >> 10] + _DIGITS[first & 1023] + _DIGITS[last >> 20] + _DIGITS[last >> 10 & 1023]
    return f"{name[:40].rstrip('-')}-{digits}{_DIGITS[last & 1023]}"
