"""One pass over one environment: its deployments, the set that serves, and the sets that have to go.

Which set an assignment belongs to is its `deployment`. The one that `ActiveRelease` names serves and is kept at the
wanted number, also while a deployment is under way. Protected are the new replicas of a deployment that is not done, and
the old ones of a promoted deployment within its drain window: the warm target of a rollback. Every other set is ended.
"""

from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import NamedTuple

from services.scheduler import deployments, replace
from services.scheduler.deployments import Rollout, Step
from services.scheduler.draft import Draft
from services.scheduler.replicas import Replica, replicas_of
from services.scheduler.scaling import Scaling, effective_replicas, rescale
from services.scheduler.state import SERVICE, State
from services.scheduler.stateful import converge_one
from shared import subjects
from shared.model.deployment import ActiveRelease, Deployment, Scale
from shared.model.environment import Environment, ServiceSpec
from shared.model.release import DeployRequest, Release
from shared.model.route import Routed
from shared.service import Decision
from shared.subjects import Key

NOTHING_ACTIVE = ActiveRelease()
NOTICES = (
    "deploy_maintenance",
    "drain_held",
    "volume_node_lost",
    "no_capacity",
    "deploy_failed",
    "deploy_promoted",
    "deploy_succeeded",
    "deploy_refused",
)


def decide_environment(state: State, key: Key, now: datetime) -> tuple[list[Decision], list[Draft]]:
    """The decisions about an environment and the drafts they come from, which say what it waits for."""
    spec = state.get(subjects.ENVIRONMENT, key, Environment)
    if spec is None:
        if state.deleted(subjects.ENVIRONMENT, key):
            return _tear_down(state, key, now)
        return [], []  # no record at all means hold
    active = state.get(subjects.ACTIVE, key, ActiveRelease) or NOTHING_ACTIVE
    members = replicas_of(state, ("environment", *key))
    drafts = _deployments(state, key, spec, active, members, now)
    decisions = [decision for draft in drafts if (decision := draft.decision()) is not None]
    if decisions:
        return decisions, drafts  # the replicas follow when these are in the log
    draft = Draft(state, "environment", key, now)
    _replicas(key, spec, active, members, draft)
    decision = draft.decision()
    return ([decision] if decision is not None else []), [*drafts, draft]


def serving_spec(state: State, key: Key, spec: Environment, active: ActiveRelease) -> ServiceSpec:
    """The frozen spec of the release that serves; before there is one, the template."""
    release = state.get(subjects.RELEASE, (*key, active.version), Release) if active.version else None
    return release.service if release is not None else spec.service


def _deployments(
    state: State, key: Key, spec: Environment, active: ActiveRelease, members: list[Replica], now: datetime
) -> list[Draft]:
    """A draft for every request that is not done with, the oldest first; only the newest goes on."""
    requests = _open_requests(state, key)
    if not requests:
        return []
    newest = next((each.id for each in reversed(requests) if not each.request.canceled), "")
    wanted = effective_replicas(state, key, spec, serving_spec(state, key, spec, active))
    drafts = []
    for sequence, id, request, before in requests:
        draft = Draft(state, "deployment", (*key, id), now)
        drafts.append(draft)
        if before is None and id <= active.request_floor:
            draft.notice("deploy_refused", "warning", f"request {id} is older than what was trimmed: it never starts")
            if draft.changes:
                draft.wakes.append(now)  # a notice marks nothing, and the replicas are still to be looked at
            continue
        if before is None:
            draft.because(sequence)
        record = before or deployments.begin(request, sequence, now)
        if id != newest and not request.canceled:
            record = deployments.enter(record, _superseded(record, newest), draft)
        else:
            record = deployments.advance(Rollout(key, spec, active, request, id, wanted, members, draft), record)
        _conclude(before, record, draft)
    return drafts


class _Requested(NamedTuple):
    """A request that is not done with, and what became of it. One that was deleted on its way counts as canceled."""

    sequence: int
    id: str
    request: DeployRequest
    deployment: Deployment | None


def _open_requests(state: State, environment: Key) -> list[_Requested]:
    """The oldest first."""
    found = []
    for id in state.open_of.get(environment, ()):
        key = (*environment, id)
        request = state.get(subjects.DEPLOY, key, DeployRequest)
        deployment = state.get(subjects.DEPLOYMENT, key, Deployment)
        if deployment is not None:
            sequence = deployment.requested_at_sequence
            request = request or DeployRequest(version=deployment.version, canceled=True)
        else:
            version = state.tables[subjects.DEPLOY][key]
            sequence = version.restores or version.sequence
        assert request is not None, "a request is open while there is one, or a deployment of it"
        found.append(_Requested(sequence, id, request, deployment))
    return sorted(found, key=itemgetter(0, 1))


def _superseded(record: Deployment, newest: str) -> Step:
    if record.phase == "draining_old":
        return Step("succeeded", f"promoted; deployment {newest} goes on from here")
    return Step("superseded", f"deployment {newest} is newer")


def _conclude(before: Deployment | None, record: Deployment, draft: Draft) -> None:
    """Write the record where it has changed, with the notice that goes with its new phase."""
    if record is before:
        return
    if record.terminal:
        draft.give_up()
    draft.change(subjects.DEPLOYMENT, draft.key, record)
    name = "/".join(draft.key[:3])
    if record.terminal:
        draft.end_notice("deploy_maintenance")
    if record.phase == "failed":
        draft.notice("deploy_failed", "error", f"release {record.version} of {name}: {record.error}")
    elif record.phase == "draining_old":
        draft.notice("deploy_promoted", "info", f"release {record.version} of {name} serves")
    elif record.phase == "succeeded":
        draft.notice("deploy_succeeded", "info", f"release {record.version} of {name} is deployed")


def _replicas(key: Key, spec: Environment, active: ActiveRelease, members: list[Replica], draft: Draft) -> None:
    protected = _protected(key, draft)
    serving = [item for item in members if active.version and item.assignment.deployment == active.deployment]
    if active.version:
        scaling = Scaling(key, spec, serving_spec(draft.state, key, spec, active), serving, draft)
        wanted = rescale(scaling, frozen=_deploying(key, active, draft))
        release = _serving_release(key, active, draft)
        template = partial(draft.state.template_of, key, active.version, active.image, active.platforms)
        if _stopped_for_deployment(key, draft):
            draft.reasons["held"] = "a stateful deployment is under way"
        elif release is not None and release.service.stateful:
            converge_one(key, members, active.deployment, min(1, wanted), template(), draft)
        else:
            replace.converge(serving, active.deployment, wanted, template, draft)
    for item in members:
        deployment = item.assignment.deployment
        if not (active.version and deployment == active.deployment) and deployment not in protected:
            replace.end([item], f"release {item.assignment.release} does not serve", draft)
    replace.progress(members, _routed(key, draft), draft)


def _routed(key: Key, draft: Draft) -> Routed | None:
    return draft.state.get(subjects.ROUTED_ENVIRONMENT, key, Routed)


def _deploying(key: Key, active: ActiveRelease, draft: Draft) -> bool:
    """Whether a deployment is on its way to its promotion. A request at or below the floor never starts."""
    for id in draft.state.open_of.get(key, ()):
        record = draft.state.get(subjects.DEPLOYMENT, (*key, id), Deployment)
        if record.phase != "draining_old" if record is not None else id > active.request_floor:
            return True
    return False


def _stopped_for_deployment(key: Key, draft: Draft) -> bool:
    """Whether a stateful deployment has the environment to itself."""
    for id in draft.state.open_of.get(key, ()):
        record = draft.state.get(subjects.DEPLOYMENT, (*key, id), Deployment)
        if record is not None and any(step.phase == "stopping_old" for step in record.transitions):
            return True
    return False


def _protected(key: Key, draft: Draft) -> set[str]:
    """The sets that are not to be ended though they do not serve."""
    found: set[str] = set()
    for id in draft.state.open_of.get(key, ()):
        record = draft.state.get(subjects.DEPLOYMENT, (*key, id), Deployment)
        if record is None:
            continue
        found.add(record.adopts or id)
        until = record.drain_deadline if record.phase == "draining_old" else None
        if until is not None and draft.now < until:
            found.add(record.previous_deployment)
            draft.wake(until)
    return found


def _serving_release(key: Key, active: ActiveRelease, draft: Draft) -> Release | None:
    found = draft.state.startable(key, active.version)
    if found is None:
        changed = (*key, active.version) in draft.state.contradicted
        why = "was changed after it was deployed" if changed else "cannot be read"
        draft.reasons["held"] = f"release {active.version} {why}: nothing is started"
    return found


def _tear_down(state: State, key: Key, now: datetime) -> tuple[list[Decision], list[Draft]]:
    """The environment was deleted: nothing serves, every replica goes, then all that was derived from it."""
    draft = Draft(state, "environment", key, now)
    draft.because(state.sequence_of(subjects.ENVIRONMENT, key))
    active = state.get(subjects.ACTIVE, key, ActiveRelease)
    if active is not None and active.version:
        draft.outcomes.append(f"the environment is deleted: release {active.version} serves no more")
        draft.change(
            subjects.ACTIVE,
            key,
            active.model_copy(update={"version": "", "previous": active.version, "deployment": ""}),
        )
    for id in sorted(state.open_of.get(key, ())):
        record = state.get(subjects.DEPLOYMENT, (*key, id), Deployment)
        if record is not None:
            step = Step("succeeded" if record.phase == "draining_old" else "canceled", "its environment is deleted")
            draft.change(subjects.DEPLOYMENT, (*key, id), deployments.enter(record, step, draft))
    members = replicas_of(state, ("environment", *key))
    replace.end(members, "the environment is deleted", draft)
    replace.progress(members, _routed(key, draft), draft)
    if draft.changes or members:
        decision = draft.decision()
        return ([decision] if decision is not None else []), [draft]
    return _forget(state, key, active, draft), [draft]


def _forget(state: State, key: Key, active: ActiveRelease | None, draft: Draft) -> list[Decision]:
    """Tombstones for what was derived from a deleted environment; a user's later write wins over those of user kinds."""
    ids = []
    for kind, record_key in sorted(state.history_of.get(key, ()), key=lambda item: (item[0].name, item[1])):
        if draft.full:
            break
        expected = None if kind is subjects.DEPLOYMENT else state.sequence_of(kind, record_key)
        draft.change(kind, record_key, None, expected)
        if kind is subjects.DEPLOY:
            ids.append(record_key[3])
        if kind is subjects.DEPLOYMENT:
            _forget_texts(state, "deployment", record_key, draft)
    if ids and (active is None or max(ids) > active.request_floor):
        draft.change(subjects.ACTIVE, key, (active or ActiveRelease()).model_copy(update={"request_floor": max(ids)}))
    if not draft.full:
        if state.get(subjects.SCALE, key, Scale) is not None:
            draft.change(subjects.SCALE, key, None)
        _forget_texts(state, "environment", key, draft)
        _forget_texts(state, "retention", key, draft)
    if not draft.changes:
        return []
    # A commit needs one message without an expectation, for its fence: then the explanation stays until the next pass.
    explain = all(change.expected is not None for change in draft.changes)
    return [Decision("environment", key, "forgotten", tuple(draft.changes), explain=explain)]


def _forget_texts(state: State, about: str, key: Key, draft: Draft) -> None:
    if (SERVICE, about, *key) in state.tables[subjects.DECISION]:
        draft.change(subjects.DECISION, (SERVICE, about, *key), None)
    for notice in NOTICES:
        if (SERVICE, notice, *key) in state.tables[subjects.NOTICE]:
            draft.change(subjects.NOTICE, (SERVICE, notice, *key), None)
