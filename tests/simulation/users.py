"""Simulated users: they deploy, edit, drain, change their minds, and publish what cannot be read."""

from random import Random

from shared.model.base import UserRecord
from shared.model.domain import Domain
from shared.model.environment import Environment, Placement, Replicas, ServiceSpec
from shared.model.node import NodeControl
from shared.model.release import DeployRequest, Release
from shared.model.run import Healthcheck, PortSpec, Resources, RunSpec, VolumeMount
from shared.model.volume import Volume
from shared.subjects import DEPLOY, DOMAIN, ENVIRONMENT, NODE, NODE_CONTROL, RELEASE, VOLUME, Key, Kind

from .agents import BAD_IMAGE, SICK_IMAGE
from .clock import Timeline
from .log import Log
from .wire import Message, put

STATEFUL: Key = ("shop", "db", "production")
"""One replica, with a volume."""
ENVIRONMENTS: tuple[Key, ...] = (
    ("shop", "web", "production"),
    ("shop", "cart", "production"),
    ("blog", "web", "staging"),
    STATEFUL,
)
_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_BAD_BODIES = (b"", b"{", b'{"nonsense": 1}', b"\xff\xfe", b'{"version": -1, "replicas": 3, "hostname": "a b"}', b"[]")


def ulid(timeline: Timeline, random: Random) -> str:
    """A ULID of the present moment, in lower case."""
    number = int(timeline.now.timestamp() * 1000) << 80 | random.getrandbits(80)
    return "".join(_CROCKFORD[(number >> shift) & 31] for shift in range(125, -1, -5))


class Users:
    def __init__(self, log: Log, timeline: Timeline, random: Random, nodes: list[str]) -> None:
        self._log = log
        self._timeline = timeline
        self._random = random
        self._nodes = nodes
        self._versions: dict[Key, int] = dict.fromkeys(ENVIRONMENTS, 0)
        self._requests: dict[Key, DeployRequest] = {}
        self.busy = True

    def begin(self) -> None:
        """Environments, a domain for each, and a first release that works."""
        for key in ENVIRONMENTS:
            self._environment(key)
            self.deploy(key, self.release(key, "exec:good"))
        for number, key in enumerate(ENVIRONMENTS):
            self.domain(f"site-{number}", key)
        self._step_later()

    def rest(self) -> None:
        """No more wishes; what drains and is cordoned stays so on one node at most, so that there is room."""
        self.busy = False
        for node in self._nodes[1:]:
            if (node,) in self._log.current(NODE_CONTROL):
                self._put(NODE_CONTROL, (node,), None)

    def _step_later(self) -> None:
        self._timeline.after(self._random.expovariate(1 / 6), self._step)

    def _step(self) -> None:
        if not self.busy:
            return
        key = self._random.choice(ENVIRONMENTS)
        wishes = (
            (5, lambda: self.deploy(key, self.release(key))),
            (2, lambda: self._roll_back(key)),
            (2, self._cancel),
            (1, self._repeat),
            (3, lambda: self._environment(key)),
            (2, self._control),
            (1, self._move_volume),
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
        image = image or self._random.choices(("exec:good", BAD_IMAGE, SICK_IMAGE), (8, 1, 1))[0]
        self._put(RELEASE, (*key, version), Release(image=image, service=spec))
        return version

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
        node = self._random.choice((None, *self._nodes))
        self._put(VOLUME, (*STATEFUL, "data"), Volume(node=node))

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
        key = self._random.choice(ENVIRONMENTS)
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

    def _put(self, kind: Kind, key: Key, record: UserRecord | None) -> None:
        self._log.publish(put(kind, key, record))

    def delete_node(self, node: str) -> None:
        """Decommission it."""
        self._put(NODE, (node,), None)
