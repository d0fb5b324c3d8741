"""What is placed: a workload's key, what one replica runs and reserves, and where it may go.

Nothing below this module knows whether a workload is an environment or a pool. A `Template` is made from a release once
and says everything that a replica of it needs; `assignment` stamps one out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from services.scheduler.placement import Request
from shared.codec import config_hash
from shared.model.assignment import Assignment, WorkloadRef
from shared.model.release import Release
from shared.model.run import Resources, RunSpec
from shared.subjects import Key

_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"


@dataclass(frozen=True, slots=True)
class Template:
    """One release of a workload, ready to be placed. `deployment` names the set that its replicas belong to."""

    ref: WorkloadRef
    name: str
    """The first label of the assignment ids: the app."""
    release: str
    run: RunSpec
    resources: Resources
    config_hash: str
    request: Request
    stateful: bool = False

    @property
    def volumes(self) -> tuple[str, ...]:
        return tuple(mount.name for mount in self.run.volumes)

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
        return assignment_id(self.name, workload_id(self.ref), deployment, slot, incarnation), Assignment(
            workload=self.ref,
            release=self.release,
            run=self.run,
            config_hash=self.config_hash,
            deployment=deployment,
            slot=slot,
            incarnation=incarnation,
            volume_epoch=incarnation if self.run.volumes else 0,
            resources=self.resources,
            created_at=now,
            attempt=attempt,
            not_before=not_before,
            replaces=replaces,
            reason=reason,
        )


def workload_id(ref: WorkloadRef) -> str:
    return f"{ref.kind}/{ref.key}"


def environment_ref(environment: Key) -> WorkloadRef:
    return WorkloadRef(kind="environment", key="/".join(environment))


def template(environment: Key, version: str, release: Release, image: str, platforms: tuple[str, ...]) -> Template:
    """What a replica of a release runs. `image` and `platforms` are the resolved ones, of a build where there was one."""
    spec = release.service
    run = spec.run.with_image(image)
    resources = spec.resources.effective()
    ref = environment_ref(environment)
    return Template(
        ref=ref,
        name=environment[1],
        release=version,
        run=run,
        resources=resources,
        config_hash=config_hash(run, resources),
        request=Request(
            workload=workload_id(ref),
            cpu_millis=resources.cpu_millis,
            memory_mb=resources.memory_mb,
            constraints=_sorted(spec.placement.constraints),
            platforms=platforms,
            distinct_nodes=spec.placement.distinct_nodes,
        ),
        stateful=spec.stateful,
    )


def _sorted(constraints: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(constraints.items()))


def assignment_id(name: str, workload: str, deployment: str, slot: int, incarnation: int) -> str:
    """`<at most 40 characters of the name>-<10 base32 digits of SHA-256(workload, deployment, slot, incarnation)>`."""
    material = "\0".join((workload, deployment, str(slot), str(incarnation))).encode()
    number = int.from_bytes(sha256(material).digest()[:7], "big") >> 6
    digits = "".join(_BASE32[(number >> shift) & 31] for shift in range(45, -1, -5))
    return f"{name[:40].rstrip('-')}-{digits}"
