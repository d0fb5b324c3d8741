"""One full example of every record: each field set, each value different from its default.

`python -m tests.wire.examples` writes them to `golden/`. A change there is a change of the wire format: read the diff.
"""

from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel

from shared import codec, subjects
from shared.model.activation import Activation
from shared.model.assignment import Assignment, Instance, WorkloadRef
from shared.model.build import BuildPool, BuildRequest, BuildStatus
from shared.model.build_worker import (
    BuildOrder,
    BuildReport,
    BuildWorker,
    LeaseRequest,
    WorkerConditions,
    WorkerLease,
    WorkerScale,
)
from shared.model.deployment import ActiveRelease, Deployment, Scale, Transition
from shared.model.domain import BasicAuth, Domain, Middleware
from shared.model.environment import Autoscale, Environment, Placement, RateLimit, Replicas, ServiceSpec
from shared.model.function import (
    BlobBinding,
    CatalogBinding,
    Function,
    FunctionAccess,
    FunctionScaling,
    KvBinding,
    Link,
    Pooling,
    SqlBinding,
)
from shared.model.image_sweep import ImageSweep, ImageSwept
from shared.model.live import BuildSample, Demand, InstanceUsage, LogLine, NodeSample, ProxySample
from shared.model.node import Capacity, Fleet, Node, NodeControl, NodeStatus
from shared.model.pool import Pool, PoolingPolicy, PoolPlacement, Runtime
from shared.model.release import DeployRequest, Release
from shared.model.route import (
    Endpoint,
    FunctionRoute,
    HostRoutes,
    HTTPRoute,
    InternalPort,
    InternalService,
    L4Route,
    Routed,
    RouteManifest,
    RouteSnapshot,
)
from shared.model.run import Healthcheck, PortSpec, Resources, RunSpec, VolumeMount
from shared.model.service import DecisionRecord, Notice, Rejection, Term
from shared.model.snapshot import SnapshotOrder, SnapshotPrune, SnapshotReport
from shared.model.volume import SnapshotPolicy, Volume, VolumeStatus
from shared.subjects import Key, Kind

GOLDEN = Path(__file__).parent / "golden"

ULID = "01kb8v3w2xq4r5s6t7v8w9x0yz"
ENV = ("shop", "web", "production")
T0 = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
T1 = datetime(2026, 3, 1, 12, 0, 1, 500_000, tzinfo=UTC)
T2 = datetime(2026, 3, 1, 12, 10, 0, tzinfo=UTC)

RUN = RunSpec(
    command=("python3", "server.py"),
    env={"GREETING": "good day"},
    env_from=("web.env",),
    ports=(PortSpec(name="http", container_port=8080, protocol="http", public_l4_port=9080),),
    healthcheck=Healthcheck(
        type="http",
        path="/ready",
        port="http",
        command=("true",),
        interval_seconds=2,
        timeout_seconds=1,
        grace_period_seconds=30,
        unhealthy_threshold=2,
    ),
    stop_grace_seconds=5,
    volumes=(VolumeMount(name="uploads", mount_path="/srv/uploads"),),
)
RUN_OF_HOST = RUN.model_copy(update={"volumes": ()})
RESOURCES = Resources(cpu_millis=250, memory_mb=128)
SERVICE = ServiceSpec(
    resources=RESOURCES,
    run=RUN_OF_HOST,
    autoscale=Autoscale(target_cpu_percent=70, target_memory_percent=80, target_rps_per_replica=50),
    scale_to_zero=True,
    max_concurrency=20,
    stateful=False,
    placement=Placement(constraints={"disk": "ssd"}, distinct_nodes=True),
    rate_limit=RateLimit(requests_per_second=10, burst=20),
)
MIDDLEWARE = Middleware(
    redirect_https=False,
    compress=True,
    basic_auth=BasicAuth(username="ops", password_hash="$2b$12$abcdefghijklmnopqrstuv"),
    ip_allowlist=("10.0.0.0/8",),
    max_body_bytes=1_048_576,
    sticky_sessions=True,
)
ENDPOINT = Endpoint(assignment="web-a1b2c3d4e5", node="n1", address="10.0.0.1:31000")
HTTP_ROUTE = HTTPRoute(
    hostname="shop.example.com",
    path_prefix="/api",
    domain="shop/main",
    environment="shop/web/production",
    middleware=MIDDLEWARE,
    endpoints=(ENDPOINT,),
    cold=True,
    via_activator=True,
    max_concurrency=20,
    rate_limit=RateLimit(requests_per_second=10, burst=20),
    route_generation=3,
)
L4 = L4Route(public_port=9080, protocol="tcp", environment="shop/web/production", endpoints=(ENDPOINT,))
INTERNAL = InternalService(
    fqdn="web.production.shop.internal.",
    environment="shop/web/production",
    ports=(InternalPort(name="http", port=8080, protocol="tcp", endpoints=(ENDPOINT,)),),
)
FUNCTION = FunctionRoute(namespace="shop", function="resize", pool="python/main/read", endpoints=(ENDPOINT,))

BUILD = "/".join(("shop", "web", ULID))
TOKEN = "0123456789abcdef"

RECORDS: dict[Kind, tuple[Key, BaseModel]] = {
    subjects.BUILD: (
        ("shop", "web", ULID),
        BuildRequest(
            owner="team-a",
            source_digest="sha256:" + "ab" * 32,
            type="buildpack",
            dockerfile="docker/Dockerfile",
            build_args={"VERSION": "7"},
            platforms=("linux/amd64",),
            cache_key="shop/web",
            pool="big",
            canceled=True,
        ),
    ),
    subjects.BUILD_POOL: (
        ("big",),
        BuildPool(
            min_workers=1,
            max_workers=4,
            max_idle_seconds=300,
            lease_ttl_seconds=20,
            owner_limit=2,
            max_attempts=2,
            ready_timeout_seconds=90,
            queue_timeout_seconds=7200,
            build_timeout_seconds=1800,
            service_name="buildkit.builds",
            port=1235,
        ),
    ),
    subjects.BUILD_WORKER: (
        ("big", "builder-2"),
        BuildWorker(
            ordinal=2,
            phase="running",
            conditions=WorkerConditions(scheduled=True, initialized=True, containers_ready=True, ready=True),
            created_at=T0,
            deleting=True,
            address="tcp://10.0.0.1:1234",
            node="n1",
            takes_orders=False,
        ),
    ),
    subjects.BUILD_REPORT: (
        ("big", "builder-2", ULID),
        BuildReport(
            build=BUILD,
            attempt=2,
            token=TOKEN,
            state="failed",
            image_digest="sha256:12ab",
            platforms=("linux/amd64",),
            error="exited with code 1",
        ),
    ),
    subjects.BUILD_STATUS: (
        ("shop", "web", ULID),
        BuildStatus(
            state="running",
            pool="big",
            owner="team-a",
            attempt=2,
            token=TOKEN,
            worker="builder-2",
            image="registry.example.com/shop/web@sha256:12ab",
            platforms=("linux/amd64",),
            error="attempt 1 was lost: builder-1 is silent",
            queued_at=T0,
            started_at=T1,
            finished_at=T2,
            deadline=T2,
            stopping="canceled",
            cache_key="shop/web",
            place=41,
            served_at_sequence=57,
            lost_on=("builder-1",),
        ),
    ),
    subjects.BUILD_ORDER: (
        ("big", "builder-2"),
        BuildOrder(
            build=BUILD,
            attempt=2,
            token=TOKEN,
            worker_created_at=T0,
            source_url="https://sources.example.com/sha256:12ab",
            push_reference=f"registry.example.com/shop/web:{ULID}",
            type="buildpack",
            dockerfile="docker/Dockerfile",
            build_args={"VERSION": "7"},
            platforms=("linux/amd64",),
            cache_key="shop/web",
            local_load=True,
            cancel=True,
        ),
    ),
    subjects.WORKER_LEASE: (
        ("big", "builder-2"),
        WorkerLease(
            owner="team-a",
            token=TOKEN,
            leased_at=T0,
            expires_at=T1,
            address="tcp://10.0.0.1:1234",
            build=BUILD,
            request=ULID,
            worker_created_at=T0,
            idle_until=T2,
            cache_key="shop/web",
            last_owner="team-b",
            served_at_sequence=57,
        ),
    ),
    subjects.LEASE_REQUEST: (
        ("big", ULID),
        LeaseRequest(owner="team-a", requested_at=T0, deadline=T2, expires_at=T1, place=42),
    ),
    subjects.WORKER_SCALE: (("big",), WorkerScale(replicas=3, replace=("builder-1",), reason="2 builds wait")),
    subjects.ENVIRONMENT: (
        ENV,
        Environment(
            replicas=Replicas(min=2, max=6), idle_timeout_seconds=300, drain_window_seconds=60, service=SERVICE
        ),
    ),
    subjects.RELEASE: (
        (*ENV, "7"),
        Release(
            image="registry.example.com/web@sha256:12ab",
            build=ULID,
            platforms=("linux/amd64", "linux/arm64"),
            service=SERVICE,
            source={"commit": "4f2a9c1"},
        ),
    ),
    subjects.DEPLOY: ((*ENV, ULID), DeployRequest(version="7", rollback=True, canceled=True)),
    subjects.DOMAIN: (
        ("shop", "front"),
        Domain(
            hostname="shop.example.com",
            path_prefix="/api",
            environment="web/production",
            port="http",
            middleware=MIDDLEWARE,
        ),
    ),
    subjects.NODE_CONTROL: (("n1",), NodeControl(schedulable=False, drain=True, stop_stateful=True)),
    subjects.RUNTIME: (
        ("python",),
        Runtime(run=RUN_OF_HOST.with_image("exec:host"), platforms=("linux/amd64",), resources=RESOURCES),
    ),
    subjects.POOLING_POLICY: (("shop",), PoolingPolicy(admission="stable", limit=8)),
    subjects.ACCESS: (
        ("shop", "resize"),
        FunctionAccess(owned=("kv/orders/open",), grants=("group/readers",)),
    ),
    subjects.FUNCTION: (
        ("shop", "resize"),
        Function(
            runtime="python",
            handler="images.resize",
            artifact="resize/v1",
            pooling=Pooling(worker="main"),
            kv=(KvBinding(alias="open", store="orders", table="open"),),
            blob=(BlobBinding(alias="raw", bucket="media", prefix="raw"),),
            catalogs=(CatalogBinding(alias="lake", catalog="analytics"),),
            sql=(SqlBinding(alias="ledger", database="books", schema_name="public"),),
            links=(Link(alias="mail", target="send-mail", timeout_seconds=5),),
            secrets=("smtp",),
            config=("sizes",),
            env={"QUALITY": "80"},
            scaling=FunctionScaling(min_replicas=1, max_replicas=2, idle_timeout_seconds=300),
            resources=RESOURCES,
            timeout_seconds=30,
        ),
    ),
    subjects.NODE: (
        ("n1",),
        Node(
            labels={"region": "north", "disk": "ssd"},
            platform="linux/amd64",
            capacity=Capacity(cpu_millis=4000, memory_mb=8192),
            address="10.0.0.1",
            drivers=("exec",),
        ),
    ),
    subjects.INSTANCE: (
        ("n1", "web-a1b2c3d4e5"),
        Instance(
            assignment_sequence=41,
            state="failed",
            ports={"http": 31000},
            exit_code=3,
            message="exited",
            members={"resize": "ready"},
            since=T1,
            healthy_since=T0,
        ),
    ),
    subjects.FLEET: ((), Fleet(heartbeat_interval_seconds=5)),
    subjects.ACTIVATION: (("edge", *ENV), Activation(requested_at=T0, parked=3)),
    subjects.IMAGE_SWEEP: (
        ("shop", "web", ULID),
        ImageSweep(
            image="registry.example.com/shop/web@sha256:12ab",
            release="shop/web/production/3",
            keep_digests=("sha256:34cd",),
            ordered_at=T0,
        ),
    ),
    subjects.IMAGE_SWEPT: (("shop", "web", ULID), ImageSwept(state="failed", error="no route to the registry", at=T1)),
    subjects.VOLUME: (
        (*ENV, "data"),
        Volume(
            snapshot_policy=SnapshotPolicy(
                schedule="30 2 * * *",
                timezone="Europe/Rome",
                keep_last=3,
                keep_daily=7,
                paused=True,
                starting_deadline_seconds=600,
                timeout_seconds=900,
            ),
            snapshot_request=ULID,
            node="n2",
            lost_node="n1",
        ),
    ),
    subjects.SNAPSHOT_ORDER: (
        ("n1", *ENV, "data", "s-20260301t120000z"),
        SnapshotOrder(
            slot=T0,
            request=ULID,
            attempt=2,
            deadline=T2,
            state="failed",
            finished_at=T1,
            keep_reasons=("one of the last 7",),
            error="disk full",
        ),
    ),
    subjects.SNAPSHOT_REPORT: (
        ("n1", *ENV, "data", "s-20260301t120000z"),
        SnapshotReport(state="complete", size_bytes=4096, location="data/s-20260301t120000z.tar", error="none", at=T1),
    ),
    subjects.SNAPSHOT_PRUNE: (("n1", *ENV, "data"), SnapshotPrune(ids=("s-20260228t120000z",))),
    subjects.VOLUME_STATUS: (
        (*ENV, "data"),
        VolumeStatus(
            node="n1",
            state="node_lost",
            volume_epoch=41,
            holder="web-a1b2c3d4e5",
            slots_until=T0,
            request_done=ULID,
        ),
    ),
    subjects.NODE_STATUS: (
        ("n1",),
        NodeStatus(state="suspect", drain="draining", since=T0, reason="no heartbeat for 11 s"),
    ),
    subjects.ASSIGNMENT: (
        ("n1", "web-a1b2c3d4e5"),
        Assignment(
            workload=WorkloadRef(kind="environment", key="shop/web/production"),
            release="7",
            desired="drain",
            run=RUN.with_image("registry.example.com/web@sha256:12ab"),
            config_hash="0123456789abcdef",
            deployment=ULID,
            slot=1,
            incarnation=40,
            resources=RESOURCES,
            volume_epoch=39,
            created_at=T0,
            drain_deadline=T2,
            attempt=2,
            not_before=T1,
            replaces="web-f6g7h2i3j4",
            reason="exited with 3",
        ),
    ),
    subjects.DEPLOYMENT: (
        (*ENV, ULID),
        Deployment(
            phase="draining_old",
            version="7",
            previous="6",
            previous_deployment="01jd3v9q2m8n4p6r8t0w2y4z6a",
            adopts="01jd3v9q2m8n4p6r8t0w2y4z6a",
            rollback=True,
            requested_at_sequence=38,
            image="registry.example.com/web@sha256:12ab",
            platforms=("linux/amd64",),
            release_digest="ab" * 32,
            replicas=2,
            phase_since=T1,
            deadline=T2,
            promoted_at=T1,
            drain_deadline=T2,
            error="none so far",
            transitions=(Transition(phase="placing", at=T0, reason="the release has an image"),),
        ),
    ),
    subjects.ACTIVE: (
        ENV,
        ActiveRelease(
            version="7",
            previous="6",
            deployment=ULID,
            image="registry.example.com/web@sha256:12ab",
            platforms=("linux/amd64",),
            route_generation=3,
            request_floor=ULID,
        ),
    ),
    subjects.SCALE: (
        ENV,
        Scale(
            effective_replicas=4,
            policy="resource",
            reason="cpu 91 % of 70 %",
            changed_at=T0,
            low_since=T1,
            low_peak=3,
            activation_sequence=12,
        ),
    ),
    subjects.PLACEMENT: (
        ("shop", "resize"),
        PoolPlacement(
            pooled=True,
            key="shop/python/main/cf738fafaa09191b",
            pool="python/main/cf738fafaa09191b",
            rejected=True,
            reason="pool python/main/cf738fafaa09191b is full (8); use another pooling.worker",
            moving_from="python/main/db11499b8c25de33",
            moves_by=T2,
            queued_for="python/main/cf738fafaa09191b",
        ),
    ),
    subjects.POOL: (
        ("shop", "python", "main", "cf738fafaa09191b"),
        Pool(
            members=("resize",),
            waiting_count=1,
            limit=8,
            signature="ef" * 32,
            run=RUN_OF_HOST.model_copy(
                update={
                    "image": "exec:host",
                    "env": {"STEER_MEMBERS": '[{"name":"resize","handler":"images.resize","artifact":"resize/v1"}]'},
                }
            ),
            platforms=("linux/amd64",),
            resources=RESOURCES,
            desired=1,
            changed_at=T0,
            settles_by=T2,
        ),
    ),
    subjects.ROUTE_HOST: (
        ("com", "example", "shop"),
        HostRoutes(hostname="shop.example.com", routes=(HTTP_ROUTE,)),
    ),
    subjects.ROUTE_L4: (("9080",), L4),
    subjects.ROUTE_INTERNAL: (ENV, INTERNAL),
    subjects.ROUTE_FUNCTION: (("shop", "resize"), FUNCTION),
    subjects.ROUTE_MANIFEST: (
        (),
        RouteManifest(
            version=12,
            covers=44,
            digest="cd" * 32,
            format="0123456789abcdef",
            hosts=1,
            l4_ports=1,
            internal_services=1,
            functions=1,
        ),
    ),
    subjects.ROUTED_ENVIRONMENT: (ENV, Routed(active_sequence=43, drains={"web-f6g7h2i3j4": 42}, version=12)),
    subjects.ROUTED_POOL: (
        ("shop", "python", "_resize", "read"),
        Routed(active_sequence=43, drains={"resize-a1b2c3d4e5": 42}, version=12),
    ),
    subjects.TERM: (("scheduler",), Term(holder="host-1-4711", lease_revision=9, opened_at=T0)),
    subjects.DECISION: (
        ("scheduler", "environment", *ENV),
        DecisionRecord(
            read_sequence=40,
            now=T0,
            outcome="1 replica on n1",
            reasons={"feasible": 2, "rejected": {"capacity": 1}},
            observation={"heard": ["n1"]},
            changes=("steer.assignment.n1.web-a1b2c3d4e5",),
        ),
    ),
    subjects.NOTICE: (
        ("scheduler", "pending", *ENV),
        Notice(severity="warning", message="1 replica waits: no node has 250 mCPU left", at=T0, fields={"waiting": 1}),
    ),
}
"""Every kind of the log, with a key and a record."""

OTHERS: dict[str, BaseModel] = {
    "live_build": BuildSample(token=TOKEN),
    "log_line": LogLine(attempt=2, worker="builder-2", line="#5 DONE 0.3s", at=T1, end=True),
    "live_node": NodeSample(
        interval_seconds=2,
        cpu_percent=12.5,
        memory_used_mb=900,
        instances={"web-a1b2c3d4e5": InstanceUsage(cpu_percent=3, memory_mb=24)},
    ),
    "live_proxy": ProxySample(
        version=12,
        digest="cd" * 32,
        error="cannot listen on 9080",
        demand={
            "shop/web/production": Demand(
                inflight=3,
                parked=1,
                rps=20,
                error_rate=0.5,
                latency_p50_ms=2,
                latency_p99_ms=9,
                last_request_at=T1,
            )
        },
    ),
    "route_snapshot": RouteSnapshot(
        version=12,
        digest="cd" * 32,
        chunks=2,
        http_routes=(HTTP_ROUTE,),
        l4_routes=(L4,),
        internal_services=(INTERNAL,),
        function_routes=(FUNCTION,),
        cert_hosts=("shop.example.com",),
    ),
    "rejection": Rejection(
        subject="steer.environment.shop.web.production",
        sequence=50,
        kept_by="scheduler",
        problems=("replicas.min: Input should be a valid integer",),
        restored_sequence=31,
        received_at=T0,
        body="eyJyZXBsaWNhcyI6",
        body_encoding="base64",
        body_bytes=12,
    ),
}
"""What is a message of ours without being a record of the log."""


def golden() -> dict[str, BaseModel]:
    """File stem → record."""
    return {kind.name: record for kind, (_, record) in RECORDS.items()} | OTHERS


def write() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name, record in golden().items():
        (GOLDEN / f"{name}.json").write_bytes(codec.encode(record) + b"\n")


if __name__ == "__main__":
    write()
