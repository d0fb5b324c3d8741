"""A deploy request on its way to serve: the phases of a red/green deployment, and of a stateful one.

    pending [→ building] → placing → starting → healthchecking → promoting → draining_old → succeeded
    pending [→ building] → stopping_old → starting → healthchecking → promoting → succeeded

Each phase is a function that says what comes next, or None to wait; every phase that waits has its deadline in the
record. Promotion is one commit, and the atomic switch of traffic. A newer request supersedes an older one; what is
already promoted then counts as succeeded. A failure leaves the old release serving: the new replicas are no part of the
active set, so they are drained like any other surplus.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from services.scheduler.draft import Draft
from services.scheduler.replace import end, start
from services.scheduler.replicas import Replica, health_seconds
from services.scheduler.stateful import blockers, start_one
from services.scheduler.workload import EPOCH, Template
from shared import subjects
from shared.codec import digest
from shared.model.base import compact
from shared.model.build import TERMINAL_STATES, BuildStatus
from shared.model.deployment import ActiveRelease, Deployment, Phase, Scale, Transition
from shared.model.environment import Environment
from shared.model.release import DeployRequest, Release
from shared.subjects import Key

RELEASE_SECONDS = 60
BUILDING_SECONDS = 3600
PLACING_SECONDS = 600
STARTING_SECONDS = 600
STOPPING_SECONDS = 600
ENDING_SECONDS = 300
"""How long the old set may take to go, after its drain window."""

_TRANSITION = compact(Transition(phase="pending", at=EPOCH))
_PENDING = compact(Deployment(phase="pending", version="", requested_at_sequence=0, phase_since=EPOCH))


@dataclass(frozen=True, slots=True)
class Step:
    """What a phase found: the next phase, why, its deadline, and the fields that it fixes."""

    phase: Phase
    reason: str = ""
    deadline: datetime | None = None
    fixes: dict[str, Any] | None = None


@dataclass
class Rollout:
    """One deployment in one pass. `members` are all replicas of the environment."""

    environment: Key
    spec: Environment
    active: ActiveRelease
    request: DeployRequest
    id: str
    wanted: int
    """How many replicas the environment is to have now."""
    members: Sequence[Replica]
    draft: Draft

    @property
    def release(self) -> Release | None:
        return self.draft.state.get(subjects.RELEASE, (*self.environment, self.request.version), Release)

    def set_of(self, deployment: str) -> list[Replica]:
        return [item for item in self.members if item.assignment.deployment == deployment]

    def deadline(self, seconds: float) -> datetime:
        return self.draft.now + timedelta(seconds=seconds)


def begin(request: DeployRequest, sequence: int, now: datetime) -> Deployment:
    """The record that a request starts with."""
    return _PENDING.replaced(
        version=request.version,
        rollback=request.rollback,
        requested_at_sequence=sequence,
        phase_since=now,
        deadline=now + timedelta(seconds=RELEASE_SECONDS),
        transitions=(_TRANSITION.replaced(at=now),),
    )


def advance(rollout: Rollout, record: Deployment) -> Deployment:
    """Go through as many phases as the records allow; what is started or promoted on the way is in the draft."""
    draft = rollout.draft
    for _ in range(len(_PHASES) + 1):
        if record.terminal:
            break
        before = len(draft.changes)
        step = _canceled(rollout, record) or _PHASES[record.phase](rollout, record)
        if step is None and record.deadline is not None and record.phase != "draining_old":
            step = _overdue(record, draft)
        if step is not None:
            record = enter(record, step, draft)
        if step is None or len(draft.changes) > before:
            break  # what has just been planned is not in the state yet
    return record


def enter(record: Deployment, step: Step, draft: Draft) -> Deployment:
    """The record in its next phase."""
    draft.outcomes.append(f"{record.phase} → {step.phase}" + (f": {step.reason}" if step.reason else ""))
    fixes = dict(step.fixes or {})
    if step.phase in ("failed", "canceled", "superseded"):
        fixes["error"] = step.reason
    transition = _TRANSITION.replaced(phase=step.phase, at=draft.now, reason=step.reason)
    return record.replaced(
        phase=step.phase,
        phase_since=draft.now,
        deadline=step.deadline,
        transitions=(*record.transitions, transition),
        **fixes,
    )


def _is_overdue(record: Deployment, draft: Draft) -> bool:
    """Nothing is started any more: what would come of it comes too late."""
    return record.deadline is not None and draft.now >= record.deadline


def _overdue(record: Deployment, draft: Draft) -> Step | None:
    assert record.deadline is not None
    if not _is_overdue(record, draft):
        draft.wake(record.deadline)
        return None
    why = ""
    if pending := draft.recorded.get("pending"):
        why = f": {pending['missing']} of {pending['wanted']} replicas have no place"
        draft.reasons["unplaced"] = pending
    return Step("failed", f"not done with {record.phase} by its deadline{why}")


def _canceled(rollout: Rollout, record: Deployment) -> Step | None:
    if rollout.request.canceled and record.phase != "draining_old":
        return Step("canceled", "canceled by its request")
    return None


def _pending(rollout: Rollout, record: Deployment) -> Step | None:
    release = rollout.release
    if release is None:
        assert record.deadline is not None
        if rollout.draft.now < record.deadline:
            return None
        return Step("failed", f"release {record.version} does not exist")
    fixes: dict[str, Any] = {
        "image": release.image or record.image,
        "platforms": release.platforms or record.platforms,
        "release_digest": digest(release),
        "replicas": max(1, rollout.wanted, rollout.spec.replicas.min),
        "previous": rollout.active.version,
    }
    if not fixes["image"]:
        return Step("building", f"build {release.build}", rollout.deadline(BUILDING_SECONDS), fixes)
    if release.service.stateful:
        return Step("stopping_old", "", rollout.deadline(STOPPING_SECONDS), {**fixes, "replicas": 1})
    if record.rollback and (warm := _warm_set(rollout, record.version, fixes["replicas"])):
        return Step("promoting", f"the replicas of {warm} are warm", None, {**fixes, "adopts": warm})
    return Step("placing", "", rollout.deadline(PLACING_SECONDS), fixes)


def _building(rollout: Rollout, record: Deployment) -> Step | None:
    """The image and platforms of the build go into the deployment; the release is the user's and stays as it is."""
    release = rollout.release
    if release is None or release.build is None:
        return Step("failed", f"release {record.version} does not exist")
    key = (*rollout.environment[:2], release.build)
    status = rollout.draft.state.get(subjects.BUILD_STATUS, key, BuildStatus)
    if status is None or status.state not in TERMINAL_STATES:
        return None
    rollout.draft.because(rollout.draft.state.sequence_of(subjects.BUILD_STATUS, key))
    if status.state != "succeeded":
        return Step("failed", f"build {release.build} {status.state}: {status.error or 'no reason given'}")
    if not status.image:
        return Step("failed", f"build {release.build} succeeded without an image")
    built = record.model_copy(update={"image": status.image, "platforms": status.platforms or record.platforms})
    return _pending(rollout, built)


def _warm_set(rollout: Rollout, version: str, wanted: int) -> str:
    """The newest set of a version, other than the one that serves, with enough healthy replicas; empty where none is."""
    healthy: dict[str, int] = {}
    for item in rollout.members:
        if item.assignment.release == version and item.assignment.desired == "run" and item.healthy:
            healthy[item.assignment.deployment] = healthy.get(item.assignment.deployment, 0) + 1
    healthy.pop(rollout.active.deployment, None)
    return max((name for name, count in healthy.items() if count >= wanted), default="")


def frozen_template(rollout: Rollout, record: Deployment) -> Template | None:
    state = rollout.draft.state
    return state.template_of(rollout.environment, record.version, record.image, record.platforms)


def _placing(rollout: Rollout, record: Deployment) -> Step | None:
    """Spread, but no node is forbidden; what cannot be placed waits with its reasons until the deadline."""
    members = rollout.set_of(rollout.id)
    missing = record.replicas - sum(item.runs for item in members)
    if missing > 0:
        if _is_overdue(record, rollout.draft):
            return None
        lost = [item for item in members if item.assignment.desired == "run" and not item.live]
        placed = start(
            members, lost, rollout.id, missing, record.replicas, frozen_template(rollout, record), rollout.draft
        )
        if placed is None or len(placed.nodes) < missing:
            return None
    return Step("starting", "", rollout.deadline(STARTING_SECONDS))


def _stopping_old(rollout: Rollout, record: Deployment) -> Step | None:
    """Nothing starts before every replica of the environment is seen to be gone."""
    draft = rollout.draft
    old = [item for item in rollout.members if item.assignment.deployment != rollout.id]
    running = [item for item in old if item.assignment.desired == "run"]
    if running:
        end(running, f"release {record.version} is to start in its place", draft)
        name = "/".join(rollout.environment)
        draft.notice("deploy_maintenance", "warning", f"{name} is stopped while release {record.version} starts")
    if running or blockers(old, draft, rollout.environment):
        return None
    return Step("starting", "", rollout.deadline(STARTING_SECONDS))


def _fill(rollout: Rollout, record: Deployment) -> None:
    """Start what the set lacks: at first where it is stateful, and again where a node was lost."""
    if _is_overdue(record, rollout.draft):
        return
    release = rollout.release
    if release is None or not release.service.stateful:
        _placing(rollout, record)
        return
    blocked = blockers(rollout.members, rollout.draft, rollout.environment)
    start_one(rollout.environment, blocked, None, rollout.id, frozen_template(rollout, record), rollout.draft)


def _failed_replica(members: Sequence[Replica], rollout: Rollout) -> Step | None:
    for item in members:
        if item.gone and not item.lost and item.assignment.desired == "run":
            rollout.draft.because(item.version.sequence)
            return Step("failed", f"replica {item.id} on {item.node}: {item.fate}")
    return None


def _starting(rollout: Rollout, record: Deployment) -> Step | None:
    members = rollout.set_of(rollout.id)
    if failed := _failed_replica(members, rollout):
        return failed
    members = [item for item in members if item.runs]
    if len(members) < record.replicas:
        _fill(rollout, record)  # within this phase's deadline
        return None
    if not all(item.started for item in members):
        return None
    release = rollout.release
    seconds = health_seconds(release.service.run) if release is not None else STARTING_SECONDS
    return Step("healthchecking", "", rollout.deadline(seconds))


def _healthchecking(rollout: Rollout, record: Deployment) -> Step | None:
    members = rollout.set_of(rollout.id)
    if failed := _failed_replica(members, rollout):
        return failed
    members = [item for item in members if item.runs]
    if len(members) < record.replicas:
        _fill(rollout, record)
        return None
    return Step("promoting") if all(item.healthy for item in members) else None


def _to_go_back_to(active: ActiveRelease, version: str) -> str:
    """The release that served last and is another one: a version that is deployed again is no way back from itself."""
    return next((each for each in (active.version, active.previous) if each not in ("", version)), "")


def _promoting(rollout: Rollout, record: Deployment) -> Step | None:
    """The one commit that switches traffic."""
    draft, active = rollout.draft, rollout.active
    serving = record.adopts or rollout.id
    draft.change(
        subjects.ACTIVE,
        rollout.environment,
        active.model_copy(
            update={
                "version": record.version,
                "previous": _to_go_back_to(active, record.version),
                "deployment": serving,
                "image": record.image,
                "platforms": record.platforms,
                "route_generation": active.route_generation + 1,
            }
        ),
    )
    release = rollout.release
    if release is not None and release.service.scale_to_zero:
        scale = Scale(
            effective_replicas=record.replicas,
            policy="activation",
            reason=f"deployment {rollout.id} promoted",
            changed_at=draft.now,
        )
        draft.change(subjects.SCALE, rollout.environment, scale)
    fixes = {"promoted_at": draft.now, "previous_deployment": active.deployment}
    draft.end_notice("deploy_maintenance")
    stateful = release is not None and release.service.stateful
    if stateful or not active.deployment or active.deployment == serving:
        return Step("succeeded", f"release {record.version} serves", None, fixes)
    until = rollout.deadline(rollout.spec.drain_window_seconds)
    fixes["drain_deadline"] = until
    return Step("draining_old", f"release {record.version} serves", until + timedelta(seconds=ENDING_SECONDS), fixes)


def _draining_old(rollout: Rollout, record: Deployment) -> Step | None:
    """The old set stays warm for its window; success is told when it is gone and the new one is healthy."""
    draft = rollout.draft
    serving = rollout.active.deployment
    if serving != (record.adopts or rollout.id):
        return Step("succeeded", f"promoted; deployment {serving or 'none'} serves now")
    if record.drain_deadline is not None and draft.now < record.drain_deadline:
        draft.wake(record.drain_deadline)
        return None
    left = [item for item in rollout.set_of(record.previous_deployment) if item.assignment.desired != "stop"]
    healthy = sum(item.healthy for item in rollout.set_of(record.adopts or rollout.id))
    if not left and healthy >= rollout.wanted:
        return Step("succeeded", f"{healthy} of {rollout.wanted} healthy, the old set is gone")
    if record.deadline is not None and draft.now >= record.deadline:
        return Step("succeeded", f"{healthy} of {rollout.wanted} healthy, {len(left)} of the old set left")
    if record.deadline is not None:
        draft.wake(record.deadline)
    return None


_PHASES: dict[Phase, Callable[[Rollout, Deployment], Step | None]] = {
    "pending": _pending,
    "building": _building,
    "placing": _placing,
    "stopping_old": _stopping_old,
    "starting": _starting,
    "healthchecking": _healthchecking,
    "promoting": _promoting,
    "draining_old": _draining_old,
}
