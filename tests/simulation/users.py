"""Simulated users: they deploy, edit, drain, change their minds, and publish what cannot be read."""

from random import Random

from shared.model.base import UserRecord
from shared.model.domain import Domain
from shared.model.environment import Autoscale, Environment, Placement, Replicas, ServiceSpec
from shared.model.node import NodeControl
from shared.model.release import DeployRequest, Release
from shared.model.run import Healthcheck, PortSpec, Resources, RunSpec, VolumeMount
from shared.model.volume import SnapshotPolicy, Volume
from shared.subjects import DEPLOY, DOMAIN, ENVIRONMENT, NODE, NODE_CONTROL, RELEASE, VOLUME, Key, Kind

from .agents import BAD_IMAGE, SICK_IMAGE
from .build_users import BuildUsers
from .clock import Timeline
from .log import Log
from .mix import Mix
from .wire import Message, put

STATEFUL: Key = ("shop", "db", "production")
"""One replica, with a volume."""
ENVIRONMENTS: tuple[Key, ...] = (
    ("shop", "web", "production"),
    ("shop", "cart", "production"),
    ("blog", "web", "staging"),
    STATEFUL,
)
VOLUME_KEY: Key = (*STATEFUL, "data")
POLICY = SnapshotPolicy(schedule="* * * * *", keep_last=2, starting_deadline_seconds=30, timeout_seconds=20)
_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_BAD_BODIES = (b"", b"{", b'{"nonsense": 1}', b"\xff\xfe", b'{"version": -1, "replicas": 3, "hostname": "a b"}', b"[]")


def ulid(timeline: Timeline, random: Random) -> str:
    """A ULID of the present moment, in lower case."""
    number = int(timeline.now.timestamp() * 1000) << 80 | random.getrandbits(80)
    return "".join(_CROCKFORD[(number >> shift) & 31] for shift in range(125, -1, -5))


class Users:
    def __init__(
        self, log: Log, timeline: Timeline, random: Random, nodes: list[str], mix: Mix, builds: BuildUsers | None
    ) -> None:
        self._log = log
        self._timeline = timeline
        self._random = random
        self._nodes = nodes
        self._mix = mix
        self._builds = builds
        self._versions: dict[Key, int] = dict.fromkeys(ENVIRONMENTS, 0)
        self._requests: dict[Key, DeployRequest] = {}
        self._volume = Volume()
        self.environments = ENVIRONMENTS[: mix.environments]
        self.busy = True

    def begin(self) -> None:
        """Environments, a domain for each, and a first release that works."""
        for key in self.environments:
            self._environment(key)
            self.deploy(key, self.release(key, "exec:good"))
        for number, key in enumerate(self.environments):
            self.domain(f"site-{number}", key)
        if self._mix.snapshots:
            self._volume = Volume(snapshot_policy=POLICY)
            self._put(VOLUME, VOLUME_KEY, self._volume)
        self._step_later()

    def rest(self) -> None:
        """No more wishes; what drains and is cordoned stays so on one node at most, so that there is room."""
        self.busy = False
        if self._volume.snapshot_policy is not None:
            self._change_volume(snapshot_policy=POLICY.model_copy(update={"paused": True}))
        for node in self._nodes[1:]:
            if (node,) in self._log.current(NODE_CONTROL):
                self._put(NODE_CONTROL, (node,), None)

    def _step_later(self) -> None:
        self._timeline.after(self._random.expovariate(1 / 6), self._step)

    def _step(self) -> None:
        if not self.busy:
            return
        key = self._random.choice(self.environments)
        wishes = (
            (5, lambda: self.deploy(key, self.release(key))),
            (2, lambda: self._roll_back(key)),
            (2, self._cancel),
            (1, self._repeat),
            (3, lambda: self._environment(key)),
            (2, self._control),
            (1, self._move_volume),
            (2 if self._mix.snapshots else 0, self._ask_for_a_snapshot),
            (1, lambda: self._move_domain(f"site-{self._random.randrange(4)}", key)),
            (3, self._publish_nonsense),
            (0.4, lambda: self._put(ENVIRONMENT, key, None)),
        )
        self._random.choices([wish for _, wish in wishes], [weight for weight, _ in wishes])[0]()
        self._step_later()

    def _environment(self, key: Key) -> None:
        few = 1 if key == STATEFUL else self._random.randint(1, 3)
        self._put(
            ENVIRONMENT,
            key,
            Environment(
                replicas=Replicas(min=few, max=few if key == STATEFUL else few + 2),
                drain_window_seconds=self._random.choice((0, 5, 20, 40)),
                idle_timeout_seconds=self._random.choice((5, 15)) if self._mix.scaling else 0,
            ),
        )

    def release(self, key: Key, image: str = "") -> str:
        """A new release; most of them work, and one with a named image has no special wishes."""
        self._versions[key] += 1
        version = str(self._versions[key])
        spec = ServiceSpec(
            resources=Resources(cpu_millis=100, memory_mb=self._random.choice((0, 128, 256))),
            run=RunSpec(
                command=("run", version),
                ports=(PortSpec(name="http", container_port=8080),),
                healthcheck=Healthcheck(grace_period_seconds=self._random.choice((1, 5))),
                stop_grace_seconds=2,
                volumes=(VolumeMount(name="data", mount_path="/data"),) if key == STATEFUL else (),
            ),
            stateful=key == STATEFUL,
            placement=Placement(
                constraints={"disk": "ssd"} if not image and self._random.random() < 0.1 else {},
                distinct_nodes=not image and self._random.random() < 0.15,
            ),
        )
        if self._mix.scaling:
            spec = spec.model_copy(update=self._scaling(key))
        if self._builds is not None and not image and self._random.random() < 0.5:
            self._put(RELEASE, (*key, version), Release(build=self._builds.request(*key[:2]), service=spec))
            return version
        image = image or self._random.choices(("exec:good", BAD_IMAGE, SICK_IMAGE), (8, 1, 1))[0]
        self._put(RELEASE, (*key, version), Release(image=image, service=spec))
        return version

    def _scaling(self, key: Key) -> dict[str, object]:
        """The first sleeps without visitors, the second is as wide as they are many, the third as they cost."""
        if key == ENVIRONMENTS[0]:
            return {"scale_to_zero": True}
        if key == ENVIRONMENTS[1]:
            return {"max_concurrency": 2, "scale_to_zero": self._random.random() < 0.5}
        if key == ENVIRONMENTS[2]:
            return {"autoscale": Autoscale(target_cpu_percent=60)}
        return {}

    def deploy(self, key: Key, version: str, *, rollback: bool = False) -> Key:
        request_key = (*key, ulid(self._timeline, self._random))
        self._requests[request_key] = DeployRequest(version=version, rollback=rollback)
        self._put(DEPLOY, request_key, self._requests[request_key])
        return request_key

    def _roll_back(self, key: Key) -> None:
        self.deploy(key, str(self._random.randint(1, self._versions[key])), rollback=self._random.random() < 0.8)

    def _cancel(self) -> None:
        key = self._random.choice(list(self._requests)[-4:])
        self._requests[key] = self._requests[key].model_copy(update={"canceled": True})
        self._put(DEPLOY, key, self._requests[key])

    def _repeat(self) -> None:
        """The same request once more, as a script that runs again would send it."""
        key = self._random.choice(list(self._requests))
        self._put(DEPLOY, key, self._requests[key])

    def _control(self) -> None:
        node = self._random.choice(self._nodes)
        drain = self._random.random() < 0.5
        done = self._random.random() < 0.4
        stop_stateful = self._random.random() < 0.5
        schedulable = self._random.random() < 0.5
        record = None if done else NodeControl(schedulable=schedulable, drain=drain, stop_stateful=stop_stateful)
        self._put(NODE_CONTROL, (node,), record)

    def _move_volume(self) -> None:
        """Its data is somebody else's concern."""
        self._change_volume(node=self._random.choice((None, *self._nodes)))

    def _ask_for_a_snapshot(self) -> None:
        self._change_volume(snapshot_request=ulid(self._timeline, self._random))

    def declare_lost(self, node: str) -> None:
        """The operator knows that nothing runs on the node any more: its volume may go on elsewhere, without its data."""
        elsewhere = self._random.choice([name for name in self._nodes if name != node])
        self._change_volume(node=elsewhere, lost_node=node)

    def withdraw_lost(self, node: str) -> None:
        """The machine is back."""
        if self._volume.lost_node == node:
            self._change_volume(lost_node=None)

    def _change_volume(self, **update: object) -> None:
        self._volume = self._volume.model_copy(update=update)
        self._put(VOLUME, VOLUME_KEY, self._volume)

    def domain(self, name: str, key: Key, hostname: str = "", path_prefix: str = "") -> None:
        """A hostname that leads to an environment."""
        hostname = hostname or f"{name}.example.com"
        domain = Domain(hostname=hostname, path_prefix=path_prefix, environment="/".join(key[1:]))
        self._put(DOMAIN, (key[0], name), domain)

    def _move_domain(self, name: str, key: Key) -> None:
        """Somewhere else, where it may be in another's way; or away."""
        if self._random.random() < 0.2:
            self._put(DOMAIN, (key[0], name), None)
            return
        hostname = self._random.choice((f"{name}.example.com", "www.example.com", "*.example.com"))
        self.domain(name, key, hostname, self._random.choice(("", "/a", "/a/b")))

    def _publish_nonsense(self) -> None:
        """Over a record that is there, or where there was none; once or many times."""
        key = self._random.choice(self.environments)
        subject = self._random.choice(
            (
                ENVIRONMENT.subject(*key),
                RELEASE.subject(*key, str(self._random.randint(1, self._versions[key] + 3))),
                DEPLOY.subject(*self._random.choice(list(self._requests))),
                NODE_CONTROL.subject(self._random.choice(self._nodes)),
                DOMAIN.subject(key[0], "site-0"),
                ENVIRONMENT.subject("shop", "never-seen", "production"),
            )
        )
        for _ in range(self._random.choice((1, 1, 1, 12))):
            self._log.publish(Message(subject, self._random.choice(_BAD_BODIES)))
        if subject == ENVIRONMENT.subject(*key) and self._random.random() < 0.5:  # seen, and corrected at once
            self._timeline.after(self._random.uniform(0, 0.03), lambda: self._environment(key) if self.busy else None)

    def _put(self, kind: Kind, key: Key, record: UserRecord | None) -> None:
        self._log.publish(put(kind, key, record))

    def delete_node(self, node: str) -> None:
        """Decommission it."""
        self._put(NODE, (node,), None)
