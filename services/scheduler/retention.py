"""What is kept of an environment's past, and what goes.

Kept are the release that serves and the one before it, the ten newest, and every release that a request which is not done
names; and the last twenty deployments that are done. A request and all that was derived from it go in one commit, each
user-owned tombstone with the version that was judged as its expected sequence: a user's later write wins. The greatest
id that goes is the environment's `request_floor`: nothing at or below it ever starts again.

An image that a build made and no kept release needs is ordered to be swept.
"""

from datetime import datetime

from services.scheduler.draft import Draft
from services.scheduler.state import SERVICE, State
from shared import subjects
from shared.model.build import BuildStatus
from shared.model.deployment import ActiveRelease, Deployment
from shared.model.image_sweep import ImageSweep, ImageSwept
from shared.model.release import DeployRequest, Release
from shared.service import Decision
from shared.subjects import Key

KEEP_RELEASES = 10
KEEP_DEPLOYMENTS = 20
MAX_STEP = 100
DEPLOYMENT_NOTICES = (
    "deploy_failed",
    "deploy_promoted",
    "deploy_succeeded",
    "deploy_refused",
    "deploy_maintenance",
    "no_capacity",
)


def decide_retention(state: State, key: Key, now: datetime) -> tuple[list[Decision], list[Draft]]:
    """The tombstones that an environment's past has come to, and the sweeps of its images."""
    draft = Draft(state, "retention", key, now)
    active = state.get(subjects.ACTIVE, key, ActiveRelease)
    if active is None or state.deleted(subjects.ENVIRONMENT, key):
        return [], [draft]
    deployments = _trim_deployments(key, active, draft)
    _trim_releases(key, active, deployments, draft)
    if not draft.changes:
        return [], [draft]
    draft.outcomes.append("trimmed to what is kept")
    decision = draft.decision()
    return ([decision] if decision is not None else []), [draft]


def _trim_deployments(key: Key, active: ActiveRelease, draft: Draft) -> list[Deployment]:
    """Tombstones for all but the last of the deployments that are done; returns those that stay."""
    state = draft.state
    found = []
    for kind, name in state.history_of.get(key, ()):
        record = state.get(kind, name, Deployment) if kind is subjects.DEPLOYMENT else None
        if record is not None:
            found.append((record.requested_at_sequence, name, record))
    done = sorted(item[:2] for item in found if item[2].terminal and item[1][3] != active.deployment)
    gone = [name for _, name in done[: max(0, len(done) - KEEP_DEPLOYMENTS)]][:MAX_STEP]
    for name in gone:
        if name in state.tables[subjects.DEPLOY]:
            draft.change(subjects.DEPLOY, name, None, state.sequence_of(subjects.DEPLOY, name))
        draft.change(subjects.DEPLOYMENT, name, None)
        forget_texts(state, "deployment", name, draft)
    if gone:
        floor = max(active.request_floor, *(name[3] for name in gone))
        draft.change(subjects.ACTIVE, key, active.model_copy(update={"request_floor": floor}))
        draft.reasons["deployments"] = [name[3] for name in gone]
    return [record for _, name, record in found if name not in gone]


def _trim_releases(key: Key, active: ActiveRelease, deployments: list[Deployment], draft: Draft) -> None:
    state = draft.state
    releases = {}
    for kind, name in state.history_of.get(key, ()):
        release = state.get(kind, name, Release) if kind is subjects.RELEASE else None
        if release is not None:
            releases[int(name[3])] = release
    kept = keep_set(sorted(releases), active, deployments)
    kept |= {int(version) for version in _requested(key, state)}
    gone = sorted(releases.keys() - kept)[:MAX_STEP]
    if not gone:
        return
    images = {record.version: record.image for record in deployments if record.image}
    if active.image:
        images[active.version] = active.image
    resolved = {version: images.get(str(version)) or _image(key, releases[version], state) for version in releases}
    stay = [(releases[version].build, resolved[version]) for version in kept & releases.keys()]
    stay += _elsewhere(key, state)
    for version in gone:
        name = (*key, str(version))
        draft.change(subjects.RELEASE, name, None, state.sequence_of(subjects.RELEASE, name))
        _sweep((*key, str(version)), releases[version].build, resolved[version], stay, draft)
    draft.reasons["releases"] = [str(version) for version in gone]


def keep_set(versions: list[int], active: ActiveRelease, deployments: list[Deployment]) -> set[int]:
    """The versions that stay: reference section 13. `versions` ascending."""
    kept = set(versions[-KEEP_RELEASES:])
    if active.version:
        kept.add(int(active.version))
        kept.update([version for version in versions if version < int(active.version)][-1:])
    named = [active.previous]
    for record in deployments:
        if not record.terminal:
            named += [record.version, record.previous]
    return kept | {int(version) for version in named if version}


def _requested(key: Key, state: State) -> list[str]:
    """The versions that requests name which have not begun."""
    records = (state.get(subjects.DEPLOY, (*key, id), DeployRequest) for id in state.open_of.get(key, ()))
    return [record.version for record in records if record is not None]


def _elsewhere(key: Key, state: State) -> list[tuple[str | None, str]]:
    """Build and image of each release of the other environments of the app, which share its images."""
    found = []
    for environment in state.built_of.get(key[:2], {}).keys() - {key}:
        for kind, name in state.history_of.get(environment, ()):
            release = state.get(kind, name, Release) if kind is subjects.RELEASE else None
            if release is not None:
                found.append((release.build, _image(key, release, state)))
    return found


def _sweep(name: Key, build: str | None, image: str, stay: list[tuple[str | None, str]], draft: Draft) -> None:
    """Order the sweep of the image of a release that goes, unless one that stays has the same build.

    A digest that a release that stays runs with is named, so that it stays too: equal sources build equal images.
    """
    if build is None or any(other == build for other, _ in stay):
        return
    sweep = ImageSweep(
        image=image,
        release="/".join(name),
        keep_digests=tuple(sorted({used.partition("@")[2] for _, used in stay if "@" in used})),
        ordered_at=draft.now,
    )
    draft.change(subjects.IMAGE_SWEEP, (*name[:2], build), sweep)


def _image(key: Key, release: Release, state: State) -> str:
    """What a release runs, as far as its build is known."""
    status = state.get(subjects.BUILD_STATUS, (*key[:2], release.build), BuildStatus) if release.build else None
    return status.image if status is not None else release.image


def decide_sweep(state: State, key: Key, now: datetime) -> tuple[list[Decision], list[Draft]]:
    """A sweep that is done is forgotten; the sweeper then forgets its answer."""
    draft = Draft(state, "image_sweep", key, now)
    swept = state.get(subjects.IMAGE_SWEPT, key, ImageSwept)
    if swept is None or swept.state != "done" or state.get(subjects.IMAGE_SWEEP, key, ImageSweep) is None:
        return [], [draft]
    draft.change(subjects.IMAGE_SWEEP, key, None)
    return [Decision("image_sweep", key, "swept", tuple(draft.changes), explain=False)], [draft]


def forget_texts(state: State, about: str, key: Key, draft: Draft) -> None:
    """Tombstones for the explanations and notices of a thing that goes."""
    if (SERVICE, about, *key) in state.tables[subjects.DECISION]:
        draft.change(subjects.DECISION, (SERVICE, about, *key), None)
    for notice in DEPLOYMENT_NOTICES:
        if (SERVICE, notice, *key) in state.tables[subjects.NOTICE]:
            draft.change(subjects.NOTICE, (SERVICE, notice, *key), None)
