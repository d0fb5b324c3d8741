"""A builder on a log of its own: publish a record, let it decide until it is quiet, look at what came out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic import BaseModel

from services.builder.config import BuilderConfig
from services.builder.decide import decide
from services.builder.service import service
from services.builder.state import SERVICE, State, attend, fold, observe, settle
from shared import subjects
from shared.model.build import BuildPool, BuildRequest, BuildStatus
from shared.model.build_worker import (
    BuildOrder,
    BuildReport,
    BuildWorker,
    ReportState,
    WorkerConditions,
    WorkerLease,
    WorkerPhase,
    WorkerScale,
)
from shared.model.live import BuildSample
from shared.model.service import DecisionRecord
from shared.service import Change, Decision, Plan, Sample, Version
from shared.subjects import Key, Kind
from tests.unit.made_again import MadeAgain

M = TypeVar("M", bound=BaseModel)
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
POOL = "default"
READY = WorkerConditions(scheduled=True, initialized=True, containers_ready=True, ready=True)
CONFIG = BuilderConfig(source_url_base="https://sources/", registry_address="Registry.Example:5000")


def build_key(number: int, app: str = "web") -> Key:
    return ("shop", app, f"{number:026d}")


@dataclass
class World:
    """`now` moves only when a test says so; workers that are not silenced send heartbeats as it does."""

    now: datetime = EPOCH
    pool: BuildPool | None = field(default_factory=lambda: BuildPool(max_workers=4))
    config: BuilderConfig = CONFIG
    sequence: int = 0
    log: list[Version] = field(default_factory=list)
    wake_at: datetime | None = None
    silenced: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.state = State(self.config)
        self.again = MadeAgain(service(self.config))
        attend(self.state, self.now)
        if self.pool is not None:
            self.publish(subjects.BUILD_POOL, (POOL,), self.pool)

    # -- the log --------------------------------------------------------------------------------------------------------

    def publish(self, kind: Kind, key: Key, record: BaseModel | None) -> int:
        self.sequence += 1
        version = Version(kind, key, self.sequence, record, self.now)
        self.log.append(version)
        fold(self.state, version)
        self.again.fold(version)
        return self.sequence

    def commit(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            for change in decision.changes:
                self._check(change)
                self.publish(change.kind, change.key, change.record)
            if decision.explain:
                record = DecisionRecord(
                    read_sequence=self.state.sequence,
                    now=self.now,
                    outcome=decision.outcome,
                    reasons=dict(decision.reasons),
                    observation=dict(decision.observation),
                )
                self.publish(subjects.DECISION, (SERVICE, decision.about, *decision.key), record)

    def _check(self, change: Change) -> None:
        if change.expected is not None:
            last = [v.sequence for v in self.log if (v.kind, v.key) == (change.kind, change.key)]
            assert change.expected == (last[-1] if last else 0), change

    def step(self) -> Plan:
        """One pass, committed."""
        plan = decide(self.state, self.now)
        assert decide(self.state, self.now) == plan, "a pass changed the state"
        assert plan.size <= 1000
        self.again.check(plan, self.now)
        self.commit(plan.decisions)
        settle(self.state, plan, self.now)
        self.wake_at = plan.wake_at
        return plan

    def settle(self) -> list[str]:
        """Pass after pass until nothing is left to decide; the outcomes in order."""
        outcomes: list[str] = []
        for _ in range(300):
            plan = self.step()
            outcomes += [decision.outcome for decision in plan.decisions]
            if not plan.decisions:
                assert plan.wake_at is None or plan.wake_at > self.now, "it would spin"
                return outcomes
        raise AssertionError("it never comes to rest: " + "; ".join(outcomes[-5:]))

    def advance(self, seconds: float) -> list[str]:
        """Time goes on, wake-up by wake-up, with a heartbeat of every live worker each 10 s."""
        end = self.now + timedelta(seconds=seconds)
        outcomes = self.settle()
        while self.now < end:
            next_beat = self.now + timedelta(seconds=10)
            self.now = min(end, next_beat, self.wake_at if self.wake_at and self.wake_at > self.now else end)
            for name in self.workers:
                if name not in self.silenced:
                    self.beat(name)
            outcomes += self.settle()
        return outcomes

    def restart(self) -> None:
        """Another instance takes over: it has the records, and nothing else."""
        self.state = State(self.config)
        last: dict[tuple[Kind, Key], Version] = {}
        for version in self.log:
            last[version.kind, version.key] = version
        for version in sorted(last.values(), key=lambda version: version.sequence):
            fold(self.state, version)
        attend(self.state, self.now)

    # -- users and workers ----------------------------------------------------------------------------------------------

    def build(self, number: int, owner: str = "a", app: str = "web", **fields: Any) -> Key:
        key = build_key(number, app)
        request = BuildRequest(owner=owner, source_digest=f"sha256:{number}", **fields)
        self.publish(subjects.BUILD, key, request)
        return key

    def cancel(self, key: Key) -> None:
        request = self.get(subjects.BUILD, key, BuildRequest)
        self.publish(subjects.BUILD, key, request.model_copy(update={"canceled": True}))

    def worker(self, ordinal: int, phase: WorkerPhase = "running", name: str = "", **fields: Any) -> str:
        name = name or f"w-{ordinal}"
        given = {"created_at": self.now, "conditions": READY if phase == "running" else WorkerConditions()} | fields
        self.publish(subjects.BUILD_WORKER, (POOL, name), BuildWorker(ordinal=ordinal, phase=phase, **given))
        return name

    def change_worker(self, name: str, **fields: Any) -> None:
        record = self.get(subjects.BUILD_WORKER, (POOL, name), BuildWorker)
        self.publish(subjects.BUILD_WORKER, (POOL, name), record.model_copy(update=fields))

    def remove_worker(self, name: str) -> None:
        self.publish(subjects.BUILD_WORKER, (POOL, name), None)

    @property
    def workers(self) -> list[str]:
        return [key[1] for key, v in sorted(self.state.tables[subjects.BUILD_WORKER].items()) if v.record is not None]

    def beat(self, name: str, token: str | None = None) -> None:
        if token is None:
            order = self.state.get(subjects.BUILD_ORDER, (POOL, name), BuildOrder)
            token = order.token if order is not None else ""
        observe(self.state, Sample("build", f"{POOL}/{name}", BuildSample(token=token)), self.now)

    def report(self, name: str, state: ReportState, order: BuildOrder | None = None, **fields: Any) -> None:
        """What the worker says about its order, or about an earlier one."""
        order = order or self.order(name)
        given = {"image_digest": "sha256:feed" if state == "succeeded" else ""} | fields
        report = BuildReport(build=order.build, attempt=order.attempt, token=order.token, state=state, **given)
        self.publish(subjects.BUILD_REPORT, (POOL, name, order.build.split("/")[2]), report)

    def command(self, verb: str, **request: Any) -> Mapping[str, Any]:
        """As the runtime does it: decide, commit, pass after pass, answer; {} while it waits. Raises `SteerError`."""
        command = service().commands[verb]
        decision = command.decide(self.state, request, self.now)
        self.commit([decision] if decision is not None else [])
        self.settle()
        return command.answer(self.state, request, self.now) or {}

    # -- what is there --------------------------------------------------------------------------------------------------

    def get(self, kind: Kind, key: Key, model: type[M]) -> M:
        record = self.state.get(kind, key, model)
        assert record is not None, f"{kind.name} {'/'.join(key)} is not there"
        return record

    def status(self, key: Key) -> BuildStatus:
        return self.get(subjects.BUILD_STATUS, key, BuildStatus)

    def order(self, name: str) -> BuildOrder:
        return self.get(subjects.BUILD_ORDER, (POOL, name), BuildOrder)

    def has_order(self, name: str) -> bool:
        return self.state.get(subjects.BUILD_ORDER, (POOL, name), BuildOrder) is not None

    def lease(self, name: str) -> WorkerLease:
        return self.get(subjects.WORKER_LEASE, (POOL, name), WorkerLease)

    @property
    def scale(self) -> WorkerScale:
        return self.get(subjects.WORKER_SCALE, (POOL,), WorkerScale)

    def running(self) -> dict[str, str]:
        """Worker → the number of the build that it runs, in words of the tests."""
        return {key[1]: build[2].lstrip("0") for key, build in sorted(self.state.indexes.running_at.items())}

    def notices(self) -> dict[str, str]:
        return {
            "/".join(key[1:]): getattr(version.record, "message", "")
            for key, version in self.state.tables[subjects.NOTICE].items()
        }
