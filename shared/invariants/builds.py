"""8, of builds: one attempt whose report can be accepted, one lease and one build a worker, and what ended has ended.

The limits of a pool are judged as the decision knew them: one that is lowered stops nothing that runs.
"""

from collections.abc import Iterator

from shared.invariants.logged import Breach
from shared.invariants.moment import Moment, subject_of
from shared.model.build import BuildPool, BuildStatus
from shared.model.build_worker import BuildReport, WorkerLease
from shared.service import Version
from shared.subjects import BUILD_POOL, BUILD_STATUS, WORKER_LEASE, Key


class BuildsAreSafe:
    def __init__(self) -> None:
        self._tokens: dict[str, tuple[Key, int]] = {}
        self._reported: set[str] = set()
        self._running: dict[Key, BuildStatus] = {}

    def __call__(self, moment: Moment) -> Iterator[Breach]:
        for version in moment.versions:
            if isinstance(version.record, BuildReport) and version.record.state == "succeeded":
                self._reported.add(version.record.token)
            elif version.kind is BUILD_STATUS:
                self._running.pop(version.key, None)
                if isinstance(version.record, BuildStatus) and version.record.state == "running":
                    self._running[version.key] = version.record
        for version in moment.versions:
            if version.kind is BUILD_STATUS and isinstance(version.record, BuildStatus):
                for detail in self._status(moment, version, version.record):
                    yield Breach("8", version.sequence, subject_of(version), detail)
        if any(version.kind in (BUILD_STATUS, WORKER_LEASE) for version in moment.versions):
            yield from self._workers(moment)

    def _status(self, moment: Moment, version: Version, status: BuildStatus) -> Iterator[str]:
        before = moment.view.get(BUILD_STATUS, version.key, BuildStatus, moment.first - 1)
        if before is not None and before.terminal and before != status:
            yield f"was {before.state} and became {status.state}"
        attempt, held = (version.key, status.attempt), self._tokens.get(status.token)
        if status.token and self._tokens.setdefault(status.token, attempt) != attempt:
            yield f"has the token of {held}"
        if status.state == "succeeded" and (
            status.token not in self._reported or before is None or before.token != status.token
        ):
            yield "succeeded without a report of its attempt"
        if status.state == "running" and (before is None or before.token != status.token):
            yield from self._limits(moment, version, status)

    def _limits(self, moment: Moment, version: Version, status: BuildStatus) -> Iterator[str]:
        """What a new attempt may be."""
        ats = (moment.read(version), version.sequence)
        pools = [pool for at in ats if (pool := moment.view.get(BUILD_POOL, (status.pool,), BuildPool, at)) is not None]
        if pools and status.attempt > max(pool.max_attempts for pool in pools):
            yield f"is at attempt {status.attempt}"
        limits = [pool.owner_limit for pool in pools if pool.owner_limit is not None]
        running = sum((each.pool, each.owner) == (status.pool, status.owner) for each in self._running.values())
        if pools and len(limits) == len(pools) and running > max(limits):
            yield f"is one of {running} of {status.owner}, the limit is {max(limits)}"

    def _workers(self, moment: Moment) -> Iterator[Breach]:
        at: dict[Key, Key] = {}
        last = moment.messages[-1]
        for key, status in self._running.items():
            worker = (status.pool, status.worker)
            if worker in at:
                yield Breach("8", last.sequence, last.subject, f"{worker} has the builds {at[worker]} and {key}")
            at[worker] = key
            lease = moment.view.get(WORKER_LEASE, worker, WorkerLease)
            if lease is None or lease.token != status.token:
                yield Breach("8", last.sequence, last.subject, f"build {key} runs on {worker} without its lease")
