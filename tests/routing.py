"""A log for tests of routes: it numbers what is written, folds it into a state, and publishes what routes decides."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel

from services.routes.decide import decide, settle
from services.routes.state import State, fold
from shared import subjects
from shared.codec import encode
from shared.model.assignment import Assignment, Desired, Instance, InstanceState, WorkloadRef
from shared.model.deployment import ActiveRelease
from shared.model.domain import Domain, Middleware
from shared.model.environment import Environment, RateLimit, ServiceSpec
from shared.model.node import Node, NodeStatus
from shared.model.release import Release
from shared.model.route import HostRoutes, InternalService, L4Route, Routed, RouteManifest
from shared.model.run import PortSpec, Resources, RunSpec
from shared.model.service import Notice
from shared.service import MAX_BATCH, Plan, Version
from shared.subjects import Key, Kind

START = datetime(2030, 1, 1, tzinfo=UTC)
ENV = ("shop", "web", "production")
PORTS = (PortSpec(name="http", container_port=8080),)
MAX_PASSES = 200


def spec(
    ports: tuple[PortSpec, ...] = PORTS,
    *,
    scale_to_zero: bool = False,
    max_concurrency: int = 0,
    rate_limit: RateLimit | None = None,
) -> ServiceSpec:
    return ServiceSpec(
        run=RunSpec(ports=ports),
        scale_to_zero=scale_to_zero,
        max_concurrency=max_concurrency,
        rate_limit=rate_limit,
    )


@dataclass
class World:
    """Every version that was written, in order, and a state that has folded them."""

    domain: str = "example.net"
    versions: list[Version] = field(default_factory=list)
    now: datetime = START

    def __post_init__(self) -> None:
        self.state = State(self.domain)

    # -- the log ------------------------------------------------------------------------------------------------------

    def put(self, kind: Kind, key: Key, record: BaseModel | None) -> Version:
        version = Version(kind, key, len(self.versions) + 1, record, self.now)
        self.versions.append(version)
        fold(self.state, version)
        return version

    def delete(self, kind: Kind, *key: str) -> Version:
        return self.put(kind, key, None)

    def last(self) -> dict[tuple[Kind, Key], Version]:
        return {(version.kind, version.key): version for version in self.versions}

    def loaded(self) -> State:
        """What a new instance would know: the last version of each record, tombstones included."""
        state = State(self.domain)
        for version in sorted(self.last().values(), key=lambda version: version.sequence):
            fold(state, version)
        return state

    # -- time and passes ----------------------------------------------------------------------------------------------

    def wait(self, millis: int) -> None:
        self.now += timedelta(milliseconds=millis)

    def look(self) -> Plan:
        """One pass: decide, commit, settle."""
        plan = decide(self.state, self.now)
        assert plan.size <= MAX_BATCH
        for decision in plan.decisions:
            for change in decision.changes:
                change.kind.check(change.key)
                if change.record is not None:
                    encode(change.record)
                self.put(change.kind, change.key, change.record)
        settle(self.state, plan, self.now)
        return plan

    def publish(self) -> list[Plan]:
        """Passes until one is empty, each at the time that the one before named."""
        plans = []
        for _ in range(MAX_PASSES):
            plan = self.look()
            if plan.decisions:
                plans.append(plan)
            elif plan.wake_at is None:
                return plans
            self.now = max(self.now, plan.wake_at or self.now)
        raise AssertionError(f"still deciding after {MAX_PASSES} passes: {plan}")

    # -- what happens -------------------------------------------------------------------------------------------------

    def environment(self, env: Key = ENV) -> Version:
        return self.put(subjects.ENVIRONMENT, env, Environment())

    def release(self, number: str, service: ServiceSpec | None = None, env: Key = ENV) -> Version:
        return self.put(subjects.RELEASE, (*env, number), Release(image="web", service=service or spec()))

    def promote(self, number: str, deployment: str = "", generation: int = 0, env: Key = ENV) -> Version:
        record = ActiveRelease(version=number, deployment=deployment, route_generation=generation)
        return self.put(subjects.ACTIVE, env, record)

    def node(self, node: str, address: str = "") -> Version:
        return self.put(subjects.NODE, (node,), Node(address=address or f"10.0.0.{node[1:]}"))

    def node_status(self, node: str, state: str) -> Version:
        return self.put(subjects.NODE_STATUS, (node,), NodeStatus.model_validate({"state": state, "since": self.now}))

    def assign(
        self, id: str, node: str = "n1", *, release: str = "1", deployment: str = "", desired: Desired = "run",
        env: Key = ENV,
    ) -> Version:  # fmt: skip
        record = Assignment(
            workload=WorkloadRef(kind="environment", key="/".join(env)),
            release=release,
            deployment=deployment,
            desired=desired,
            run=RunSpec(image="web"),
            config_hash="0" * 16,
            resources=Resources(),
            created_at=START,
        )
        return self.put(subjects.ASSIGNMENT, (node, id), record)

    def report(
        self, id: str, node: str = "n1", state: InstanceState = "healthy", ports: dict[str, int] | None = None
    ) -> Version:
        bound = {"http": 30001} if ports is None else ports
        record = Instance(assignment_sequence=1, state=state, ports=bound, since=self.now)
        return self.put(subjects.INSTANCE, (node, id), record)

    def replica(
        self, id: str, node: str = "n1", *, release: str = "1", deployment: str = "", env: Key = ENV
    ) -> Version:
        """A healthy one; its report is the result."""
        self.assign(id, node, release=release, deployment=deployment, env=env)
        return self.report(id, node)

    def domain_of(
        self, name: str, hostname: str, environment: str = "web/production", *, project: str = "shop",
        prefix: str = "", port: str | None = None, middleware: Middleware | None = None,
    ) -> Version:  # fmt: skip
        record = Domain(
            hostname=hostname, path_prefix=prefix, environment=environment, port=port, middleware=middleware
        )
        return self.put(subjects.DOMAIN, (project, name), record)

    # -- what is published --------------------------------------------------------------------------------------------

    def record(self, kind: Kind, *key: str) -> BaseModel | None:
        version = self.last().get((kind, key))
        return version.record if version else None

    def host(self, hostname: str) -> HostRoutes | None:
        record = self.record(subjects.ROUTE_HOST, *subjects.host_key(hostname))
        assert record is None or isinstance(record, HostRoutes)
        return record

    def addresses(self, hostname: str, prefix: str = "") -> list[str]:
        host = self.host(hostname)
        assert host is not None, f"{hostname} is not routed"
        route = next(route for route in host.routes if route.path_prefix == prefix)
        return [endpoint.address for endpoint in route.endpoints]

    def l4(self, port: int) -> L4Route | None:
        record = self.record(subjects.ROUTE_L4, str(port))
        assert record is None or isinstance(record, L4Route)
        return record

    def internal(self, env: Key = ENV) -> InternalService | None:
        record = self.record(subjects.ROUTE_INTERNAL, *env)
        assert record is None or isinstance(record, InternalService)
        return record

    def routed(self, env: Key = ENV) -> Routed | None:
        record = self.record(subjects.ROUTED_ENVIRONMENT, *env)
        assert record is None or isinstance(record, Routed)
        return record

    @property
    def manifest(self) -> RouteManifest:
        record = self.record(subjects.ROUTE_MANIFEST)
        assert isinstance(record, RouteManifest)
        return record

    def notices(self) -> Iterator[str]:
        for version in self.last().values():
            if isinstance(version.record, Notice):
                yield version.record.message


def serving(domain: str = "example.net") -> World:
    """An environment with one replica of release 1, routed."""
    world = World(domain)
    world.environment()
    world.node("n1")
    world.release("1")
    world.replica("web-1")
    world.promote("1")
    world.domain_of("main", "shop.example.com")
    world.publish()
    world.wait(1000)
    return world
