"""One build on its way: the phases.

    queued ──► running ──► succeeded | failed | canceled
       ▲          │
       └──────────┘  an attempt was lost, and there are attempts left

A running build that is to end before its worker says so (a cancel, a deadline) is `stopping`: its order says cancel, and
it ends when the worker confirms, or at the deadline, whichever comes first. Only a report with the token of the attempt
counts. A build that is done with stays done with.
"""

from datetime import datetime, timedelta
from typing import Literal

from services.builder import leases
from services.builder.draft import Draft
from services.builder.orders import image_of, platforms_of
from services.builder.state import State
from shared import subjects
from shared.model.build import BuildPool, BuildRequest, BuildState, BuildStatus
from shared.model.build_worker import BuildOrder, BuildReport, BuildWorker, WorkerLease
from shared.subjects import Key

Stopping = Literal["canceled", "failed"]


def decide_build(state: State, key: Key, now: datetime) -> Draft:
    """What a look at one build comes to."""
    draft = Draft(state, "build", key, now)
    request = state.get(subjects.BUILD, key, BuildRequest)
    status = state.get(subjects.BUILD_STATUS, key, BuildStatus)
    if status is None:
        if request is not None:
            _begin(draft, request)
        return draft
    if status.terminal and state.deleted(subjects.BUILD, key):
        forget(draft, key)  # its request and its status go together
        return draft
    build = _Build(draft, request, status)
    if status.state == "queued":
        build.queued()
    elif status.state == "running":
        build.running()
    build.note_stale_reports()
    return draft


def _begin(draft: Draft, request: BuildRequest) -> None:
    state, key, now = draft.state, draft.key, draft.now
    draft.cause = place = state.sequence_of(subjects.BUILD, key)
    if state.deleted(subjects.BUILD_STATUS, key):
        draft.outcome = "a build that was trimmed never starts again"
        draft.change(subjects.BUILD, key, None, expected=place)
        return
    pool = state.pool(request.pool)
    status = BuildStatus(
        state="queued",
        pool=request.pool,
        owner=request.owner,
        platforms=request.platforms,
        queued_at=now,
        deadline=now + timedelta(seconds=pool.queue_timeout_seconds),
        cache_key=request.cache_key,
        place=place,
    )
    draft.outcome = "queued"
    if request.canceled:
        draft.outcome = "canceled before it was queued"
        status = status.replaced(state="canceled", deadline=None, finished_at=now)
    elif state.get(subjects.BUILD_POOL, (request.pool,), BuildPool) is None:
        _no_pool(draft, request.pool)
    draft.change(subjects.BUILD_STATUS, key, status)
    draft.reasons = {"owner": request.owner, "pool": request.pool, "place": place}


def _no_pool(draft: Draft, pool: str) -> None:
    draft.notice("no_pool", "warning", f"build {'/'.join(draft.key)} waits for pool {pool}, which does not exist")


class _Build:
    """A build that has a status, and the worker it is on."""

    def __init__(self, draft: Draft, request: BuildRequest | None, status: BuildStatus) -> None:
        self.draft, self.request, self.status = draft, request, status
        self.state, self.key, self.now = draft.state, draft.key, draft.now
        self.place: Key = (status.pool, status.worker)
        self.pool = self.state.pool(status.pool)
        draft.cause = self.state.sequence_of(subjects.BUILD, self.key)

    @property
    def unwanted(self) -> str:
        """Why its owner does not want it any more; empty while it is wanted."""
        if self.state.deleted(subjects.BUILD, self.key):
            return "its request was deleted"
        return "canceled" if self.request is not None and self.request.canceled else ""

    # -- the phases -----------------------------------------------------------------------------------------------------

    def queued(self) -> None:
        status = self.status
        if self.unwanted:
            self._end("canceled", self.unwanted)
        elif status.deadline is not None and status.deadline <= self.now:
            self._end("failed", f"no worker was free for it in {self.pool.queue_timeout_seconds:g} s")
        else:
            self.draft.wake(status.deadline)
            if self.state.get(subjects.BUILD_POOL, (status.pool,), BuildPool) is None:
                _no_pool(self.draft, status.pool)
            else:
                self.draft.end_notice("no_pool")

    def running(self) -> None:
        report = self.report
        if report is not None and report.state != "running":
            self._reported(report)
            return
        lease = self.state.get(subjects.WORKER_LEASE, self.place, WorkerLease) or WorkerLease()
        hearing = self.state.hearing(self.place)
        ends = hearing.ends(lease, leases.ttl(self.pool))
        reason = self._lost(lease, ends)
        if reason:
            self.draft.observation = hearing.observation()
            self._attempt_lost(f"attempt {self.status.attempt} was lost on {self.status.worker}: {reason}")
            return
        deadline = self.status.deadline
        late = deadline is not None and deadline <= self.now
        if self.status.stopping and late:
            self._end(self.status.stopping, f"{self.status.error}; the worker did not confirm")
        elif not self.status.stopping and self.unwanted:
            self._stop("canceled", self.unwanted)
        elif not self.status.stopping and late:
            self._stop("failed", f"it took longer than {self.pool.build_timeout_seconds:g} s")
        self.draft.wake(deadline)
        self.draft.wake(ends)

    # -- what happens ---------------------------------------------------------------------------------------------------

    @property
    def report(self) -> BuildReport | None:
        """What the worker says about this attempt, and no other."""
        report = self.state.get(subjects.BUILD_REPORT, (*self.place, self.key[2]), BuildReport)
        if report is None or report.token != self.status.token or report.build != "/".join(self.key):
            return None
        return report

    def _lost(self, lease: WorkerLease, ends: datetime | None) -> str:
        if lease.token != self.status.token:
            return "its lease is another's"
        worker = self.state.get(subjects.BUILD_WORKER, self.place, BuildWorker)
        return leases.lost(lease, worker, self.state.deleted(subjects.BUILD_WORKER, self.place), ends, self.now)

    def _reported(self, report: BuildReport) -> None:
        self.draft.cause = self.state.sequence_of(subjects.BUILD_REPORT, (*self.place, self.key[2]))
        self.draft.reasons = {"worker": self.status.worker, "attempt": report.attempt, "report": report.state}
        if self.status.stopping:
            self._end(self.status.stopping, self.status.error)
            return
        match report.state:
            case "succeeded":
                image = image_of(self.state.config, self.key, report)
                if image:
                    self._end("succeeded", "", image, platforms_of(self.status, report))
                    # The decision that is kept says why it ran there; that it succeeded is all in its status.
                    self.draft.outcome = ""
                else:
                    self._end("failed", "the worker reported success without the digest of an image")
            case "canceled":
                # Nobody asked for it: somebody stopped the worker's build by hand.
                self._end("canceled", report.error or "canceled at the worker")
            case _:
                self._end("failed", report.error or "the worker reported a failure without a reason")

    def _attempt_lost(self, reason: str) -> None:
        status = self.status
        if status.stopping:
            self._end(status.stopping, f"{status.error}; {reason}")
        elif self.unwanted:
            self._end("canceled", f"{self.unwanted}; {reason}")
        elif status.attempt >= self.pool.max_attempts:
            self._end("failed", f"{reason}; no attempt of {self.pool.max_attempts} is left")
        else:
            self.draft.outcome = f"{reason}; it is queued again"
            update = {
                "state": "queued",
                "token": "",
                "worker": "",
                "error": reason,
                "started_at": None,
                "deadline": self.now + timedelta(seconds=self.pool.queue_timeout_seconds),
                "lost_on": (*status.lost_on, status.worker)[-self.pool.max_attempts :],
            }
            self.draft.change(subjects.BUILD_STATUS, self.key, status.replaced(**update))
            self._free_worker()

    def _stop(self, into: Stopping, reason: str) -> None:
        """Ask the worker to stop; it has one TTL to confirm."""
        self.draft.outcome = f"stopping: {reason}"
        update = {"stopping": into, "error": reason, "deadline": self.now + leases.ttl(self.pool)}
        self.draft.change(subjects.BUILD_STATUS, self.key, self.status.replaced(**update))
        order = self.state.get(subjects.BUILD_ORDER, self.place, BuildOrder)
        if order is not None and order.token == self.status.token:
            self.draft.change(subjects.BUILD_ORDER, self.place, order.replaced(cancel=True))

    def _end(self, into: BuildState, error: str, image: str = "", platforms: tuple[str, ...] | None = None) -> None:
        self.draft.outcome = f"{into}: {error}" if error else into
        update = {
            "state": into,
            "error": error[:4096],
            "image": image,
            "platforms": self.status.platforms if platforms is None else platforms,
            "finished_at": self.now,
            "deadline": None,
            "stopping": "",
        }
        self.draft.change(subjects.BUILD_STATUS, self.key, self.status.replaced(**update))
        self.draft.end_notice("no_pool")
        if self.status.state == "running":
            self._free_worker()

    def _free_worker(self) -> None:
        """The worker is for others, and has nothing to run."""
        lease = self.state.get(subjects.WORKER_LEASE, self.place, WorkerLease)
        if lease is not None and lease.token == self.status.token:
            free = leases.released(lease, self.pool, self.now)
            self.draft.change(subjects.WORKER_LEASE, self.place, free)
        order = self.state.get(subjects.BUILD_ORDER, self.place, BuildOrder)
        if order is not None and order.token == self.status.token:
            self.draft.change(subjects.BUILD_ORDER, self.place, None)

    def note_stale_reports(self) -> None:
        """A report about an attempt that was given up counts for nothing; people are told."""
        for key in sorted(self.state.indexes.reports_of.get(self.key, ())):
            report = self.state.get(subjects.BUILD_REPORT, key, BuildReport)
            if report is None or report.state not in ("succeeded", "failed"):
                continue
            late = self.status.terminal and report.state == "succeeded" and self.status.state != "succeeded"
            if report.token != self.status.token or late:
                text = f"{key[1]} reports attempt {report.attempt} as {report.state}, which was given up: refused"
                self.draft.notice("stale_report", "warning", text, worker=key[1], attempt=report.attempt)
                return


def forget(draft: Draft, key: Key) -> None:
    """Delete what there is about a build that is done with: request, status, decision, notices."""
    state = draft.state
    request = state.tables[subjects.BUILD].get(key)
    if request is not None and request.record is not None:
        draft.change(subjects.BUILD, key, None, expected=request.sequence)
    draft.change(subjects.BUILD_STATUS, key, None)
    for kind in (subjects.DECISION, subjects.NOTICE):
        for about in ("build", "no_pool", "stale_report"):
            if ("builder", about, *key) in state.tables[kind]:
                draft.change(kind, ("builder", about, *key), None)
