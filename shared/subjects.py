"""Every subject of Steersman, built and parsed here and nowhere else.

A record kind is a prefix and the tokens of its key. One message per subject is current, so subject and record are the
same thing seen twice: `steer.environment.shop.web.production` is kind `environment` with key `(shop, web, production)`.
Texts and the CLI join a key with `/`.

Names are DNS-1123 labels, so each is one token. A few tokens have a form of their own: a release's version is a positive
decimal, a request's id a lower-case ULID, `_wildcard` stands for `*` in a hostname, `_<function>` for the worker of a
function that runs alone.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from shared.errors import InvalidSubject
from shared.model.base import NAME_PATTERN, ULID_PATTERN

Key = tuple[str, ...]

STREAM = "STEER"
SNAPSHOT_STREAM = "STEER_SNAPSHOT"
LIVE_STREAM = "STEER_LIVE"
LOG_STREAM = "STEER_LOGS"
REJECTED_STREAM = "STEER_REJECTED"
LEASE_BUCKET = "steer_leases"

LIVE_SUBJECTS = "steer.live.>"
LOG_SUBJECTS = "steer.log.>"
REJECTED_SUBJECTS = "steer.rejected.>"
SNAPSHOT_SUBJECTS = "steer.snapshot.>"
ROUTE_SNAPSHOT = "steer.snapshot.routes"
ROUTE_SUBJECTS = "steer.route.>"
"""What those who follow routes read: every route record and the manifest."""

_NAME = re.compile(NAME_PATTERN[1:-1])
_ULID = re.compile(ULID_PATTERN[1:-1])
_FORMS: dict[str, tuple[re.Pattern[str], str]] = {
    "version": (re.compile(r"[1-9][0-9]{0,17}"), "a positive decimal"),
    "ulid": (_ULID, "a ULID in lower case"),
    "worker": (re.compile(rf"_?{NAME_PATTERN[1:-1]}"), "a name, or _ and a name"),
    "port": (re.compile(r"[1-9][0-9]{0,4}"), "a port number"),
    "host": (re.compile(rf"_wildcard|{NAME_PATTERN[1:-1]}"), "a label of a hostname, or _wildcard"),
    "token": (re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}"), "letters, digits, - and _"),
}


class Owner(StrEnum):
    """Who writes a kind."""

    USERS = "users"
    AGENT = "agent"
    BUILD_WORKER = "build worker"
    PROXY = "proxy"
    SCHEDULER = "scheduler"
    ROUTES = "routes"
    SWEEPER = "sweeper"
    POOLER = "pooler"
    BUILDER = "builder"
    EVERY_SERVICE = "every service"


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A kind of record: `tokens` name its key, each `name` or `name:form`; a last token `name…` takes one or more."""

    name: str
    prefix: str
    tokens: tuple[str, ...]
    owner: Owner
    keeper: str | None = None
    """The service that validates, quarantines and restores records of this user-owned kind."""

    def __reduce__(self) -> tuple[Callable[[str], "Kind"], tuple[str]]:
        """There is one object of each kind, also after a copy: kinds are compared by identity."""
        return _kind_named, (self.name,)

    @property
    def open_ended(self) -> bool:
        return bool(self.tokens) and self.tokens[-1].partition(":")[0].endswith("…")

    @property
    def subject_filter(self) -> str:
        """The filter that all of its subjects match, well-formed or not."""
        return f"{self.prefix}.>" if self.tokens else self.prefix

    @property
    def template(self) -> str:
        """For people: `steer.release.<project>.<app>.<environment>.<version>`."""
        return ".".join([self.prefix, *(f"<{token.partition(':')[0]}>" for token in self.tokens)])

    def subject(self, *key: str) -> str:
        """The subject of a key; the key is trusted to be well-formed, see `check`."""
        return ".".join((self.prefix, *key)) if key else self.prefix

    def check(self, key: Key) -> None:
        """Raise `InvalidSubject` where a token of the key has not its form, or there are too few or too many."""
        subject = self.subject(*key)
        if _form(self).fullmatch(subject) and subject.count(".") == self.prefix.count(".") + len(key):
            return
        if len(key) < len(self.tokens) or (len(key) > len(self.tokens) and not self.open_ended):
            raise InvalidSubject(
                self.subject(*key),
                f"{self.name} has {len(self.tokens)} tokens after {self.prefix}, as in {self.template}",
            )
        self.check_tokens(key)

    def check_tokens(self, key: Key) -> None:
        """Raise `InvalidSubject` where a token has not its form; of a key, or of its first tokens."""
        for position, token in enumerate(key):
            spec = self.tokens[min(position, len(self.tokens) - 1)]
            name, _, form = spec.partition(":")
            pattern, meaning = _FORMS.get(form, (_NAME, "a DNS-1123 label: a-z, 0-9 and -, at most 63 characters"))
            if not pattern.fullmatch(token):
                raise InvalidSubject(self.subject(*key), f"<{name}> is {token!r}, which is not {meaning}")


_ENV = ("project", "app", "environment")

ENVIRONMENT = Kind("environment", "steer.environment", _ENV, Owner.USERS, "scheduler")
RELEASE = Kind("release", "steer.release", (*_ENV, "version:version"), Owner.USERS, "scheduler")
DEPLOY = Kind("deploy", "steer.deploy", (*_ENV, "id:ulid"), Owner.USERS, "scheduler")
VOLUME = Kind("volume", "steer.volume", (*_ENV, "name"), Owner.USERS, "scheduler")
DOMAIN = Kind("domain", "steer.domain", ("project", "name"), Owner.USERS, "routes")
NODE_CONTROL = Kind("node_control", "steer.node_control", ("node",), Owner.USERS, "scheduler")

BUILD = Kind("build", "steer.build", ("project", "app", "id:ulid"), Owner.USERS, "builder")
BUILD_POOL = Kind("build_pool", "steer.build_pool", ("pool",), Owner.USERS, "builder")
RUNTIME = Kind("runtime", "steer.runtime", ("runtime",), Owner.USERS, "pooler")
POOLING_POLICY = Kind("pooling_policy", "steer.pooling_policy", ("namespace",), Owner.USERS, "pooler")
ACCESS = Kind("access", "steer.access", ("namespace", "function"), Owner.USERS, "pooler")
FUNCTION = Kind("function", "steer.function", ("namespace", "name"), Owner.USERS, "pooler")

NODE = Kind("node", "steer.node", ("node",), Owner.AGENT)
INSTANCE = Kind("instance", "steer.instance", ("node", "assignment"), Owner.AGENT)

ACTIVATION = Kind("activation", "steer.activation", ("proxy", *_ENV), Owner.PROXY)

BUILD_WORKER = Kind("build_worker", "steer.build_worker", ("pool", "worker"), Owner.BUILD_WORKER)
BUILD_REPORT = Kind("build_report", "steer.build_report", ("pool", "worker", "build:ulid"), Owner.BUILD_WORKER)

SNAPSHOT_REPORT = Kind("snapshot_report", "steer.snapshot_report", ("node", *_ENV, "volume", "id"), Owner.AGENT)

FLEET = Kind("fleet", "steer.fleet", (), Owner.SCHEDULER)
NODE_STATUS = Kind("node_status", "steer.node_status", ("node",), Owner.SCHEDULER)
ASSIGNMENT = Kind("assignment", "steer.assignment", ("node", "id"), Owner.SCHEDULER)
DEPLOYMENT = Kind("deployment", "steer.deployment", (*_ENV, "id:ulid"), Owner.SCHEDULER)
ACTIVE = Kind("active", "steer.active", _ENV, Owner.SCHEDULER)
SCALE = Kind("scale", "steer.scale", _ENV, Owner.SCHEDULER)

BUILD_STATUS = Kind("build_status", "steer.build_status", ("project", "app", "id:ulid"), Owner.BUILDER)
BUILD_ORDER = Kind("build_order", "steer.build_order", ("pool", "worker"), Owner.BUILDER)
WORKER_LEASE = Kind("worker_lease", "steer.worker_lease", ("pool", "worker"), Owner.BUILDER)
LEASE_REQUEST = Kind("lease_request", "steer.lease_request", ("pool", "id:ulid"), Owner.BUILDER)
WORKER_SCALE = Kind("worker_scale", "steer.worker_scale", ("pool",), Owner.BUILDER)

PLACEMENT = Kind("placement", "steer.placement", ("namespace", "function"), Owner.POOLER)
POOL = Kind("pool", "steer.pool", ("namespace", "runtime", "worker:worker", "access"), Owner.POOLER)
SNAPSHOT_ORDER = Kind("snapshot_order", "steer.snapshot_order", ("node", *_ENV, "volume", "id"), Owner.SCHEDULER)
SNAPSHOT_PRUNE = Kind("snapshot_prune", "steer.snapshot_prune", ("node", *_ENV, "volume"), Owner.SCHEDULER)
IMAGE_SWEEP = Kind("image_sweep", "steer.image_sweep", ("project", "app", "tag:token"), Owner.SCHEDULER)
IMAGE_SWEPT = Kind("image_swept", "steer.image_swept", ("project", "app", "tag:token"), Owner.SWEEPER)
VOLUME_STATUS = Kind("volume_status", "steer.volume_status", (*_ENV, "name"), Owner.SCHEDULER)

ROUTE_HOST = Kind("route_host", "steer.route.host", ("label…:host",), Owner.ROUTES)
ROUTE_L4 = Kind("route_l4", "steer.route.l4", ("port:port",), Owner.ROUTES)
ROUTE_INTERNAL = Kind("route_internal", "steer.route.internal", _ENV, Owner.ROUTES)
ROUTE_FUNCTION = Kind("route_function", "steer.route.function", ("namespace", "function"), Owner.ROUTES)
ROUTE_MANIFEST = Kind("route_manifest", "steer.route.manifest", (), Owner.ROUTES)
ROUTED_ENVIRONMENT = Kind("routed_environment", "steer.routed.environment", _ENV, Owner.ROUTES)
ROUTED_POOL = Kind(
    "routed_pool", "steer.routed.pool", ("namespace", "runtime", "worker:worker", "access"), Owner.ROUTES
)

TERM = Kind("term", "steer.term", ("service",), Owner.EVERY_SERVICE)
DECISION = Kind("decision", "steer.decision", ("service", "about:token", "key…:token"), Owner.EVERY_SERVICE)
NOTICE = Kind("notice", "steer.notice", ("service", "kind:token", "key…:token"), Owner.EVERY_SERVICE)

KINDS: tuple[Kind, ...] = (
    ENVIRONMENT, RELEASE, DEPLOY, VOLUME, DOMAIN, NODE_CONTROL, BUILD, BUILD_POOL,
    RUNTIME, POOLING_POLICY, ACCESS, FUNCTION,
    NODE, INSTANCE, ACTIVATION, SNAPSHOT_REPORT, BUILD_WORKER, BUILD_REPORT,
    FLEET, NODE_STATUS, ASSIGNMENT, DEPLOYMENT, ACTIVE, SCALE, VOLUME_STATUS,
    SNAPSHOT_ORDER, SNAPSHOT_PRUNE, IMAGE_SWEEP, IMAGE_SWEPT,
    BUILD_STATUS, BUILD_ORDER, WORKER_LEASE, LEASE_REQUEST, WORKER_SCALE,
    PLACEMENT, POOL,
    ROUTE_HOST, ROUTE_L4, ROUTE_INTERNAL, ROUTE_FUNCTION, ROUTE_MANIFEST, ROUTED_ENVIRONMENT, ROUTED_POOL,
    TERM, DECISION, NOTICE,
)  # fmt: skip
"""Every kind of the log, in the order of the subject table."""

BY_NAME: dict[str, Kind] = {kind.name: kind for kind in KINDS}
_BY_PREFIX: dict[Key, Kind] = {tuple(kind.prefix.split(".")): kind for kind in KINDS}
ROUTE_KINDS: tuple[Kind, ...] = (ROUTE_HOST, ROUTE_L4, ROUTE_INTERNAL, ROUTE_FUNCTION)


@cache
def _form(kind: Kind) -> re.Pattern[str]:
    """What a well-formed subject of the kind is: one match says so, and `check` finds out what is wrong."""
    forms = [_FORMS.get(token.partition(":")[2], (_NAME, ""))[0].pattern for token in kind.tokens]
    if kind.open_ended:
        forms[-1] = rf"{forms[-1]}(?:\.(?:{forms[-1]}))*"
    return re.compile(r"\.".join([re.escape(kind.prefix), *(f"(?:{form})" for form in forms)]))


def _kind_named(name: str) -> Kind:
    return BY_NAME[name]


def kind_of(subject: str) -> tuple[Kind, Key]:
    """The kind of a subject and its key, whose tokens are not checked. Raises `InvalidSubject` for a foreign one."""
    tokens = tuple(subject.split("."))
    for length in (2, 3):
        kind = _BY_PREFIX.get(tokens[:length])
        if kind is not None:
            return kind, tokens[length:]
    raise InvalidSubject(subject, "not a subject of Steersman")


def parse(subject: str) -> tuple[Kind, Key]:
    """The kind and the key of a subject. Raises `InvalidSubject` where it is foreign or a token has not its form."""
    kind, key = kind_of(subject)
    if _form(kind).fullmatch(subject) is None:
        kind.check(key)  # says what is wrong
    return kind, key


def carrying(key: Key) -> tuple[str, ...]:
    """Filters for the subjects of any kind whose key begins with this one, a doer's or service's name left aside."""
    tail = ".".join(key)
    return f"steer.*.{tail}", f"steer.*.{tail}.>", f"steer.*.*.{tail}", f"steer.*.*.{tail}.>"


def host_key(hostname: str) -> Key:
    """`*.example.com` → `(com, example, _wildcard)`: the key of its `route_host`."""
    return tuple("_wildcard" if label == "*" else label for label in reversed(hostname.split(".")))


def hostname(key: Key) -> str:
    """The inverse of `host_key`."""
    return ".".join("*" if token == "_wildcard" else token for token in reversed(key))


def live_node(node: str) -> str:
    return f"steer.live.node.{node}"


def live_proxy(proxy: str) -> str:
    return f"steer.live.proxy.{proxy}"


def live_build(pool: str, worker: str) -> str:
    return f"steer.live.build.{pool}.{worker}"


def live_filter(source: str) -> str:
    """Everything that one kind of source sends."""
    return f"steer.live.{source}.>"


def parse_live(subject: str) -> tuple[str, str]:
    """`steer.live.node.n1` → `("node", "n1")`, `steer.live.build.p.w` → `("build", "p/w")`. Raises `InvalidSubject`."""
    tokens = subject.split(".")
    names = tokens[3:]
    wanted = 2 if tokens[2:3] == ["build"] else 1
    if tokens[:2] != ["steer", "live"] or len(names) != wanted or not all(map(_NAME.fullmatch, names)):
        forms = "steer.live.node.<node>, steer.live.proxy.<proxy> or steer.live.build.<pool>.<worker>"
        raise InvalidSubject(subject, f"telemetry is {forms}")
    return tokens[2], "/".join(names)


def build_log(*build: str) -> str:
    """Where the log lines of a build, `(project, app, id)`, are published."""
    return ".".join(("steer.log.build", *build))


def rejected(subject: str) -> str:
    """Where a message that could not be read is kept."""
    return f"steer.rejected.{subject}"


def api(service: str, verb: str) -> str:
    """Where a service answers requests."""
    return f"steer.api.{service}.{verb}"
