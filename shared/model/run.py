"""`RunSpec`: what a doer needs to run one replica. Part of records that users, the scheduler and the pooler write."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from shared.model.base import Name, Port, Seconds, Text, UserRecord

Protocol = Literal["http", "tcp", "udp"]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=256)]
EnvValue = Annotated[str, StringConstraints(max_length=262_144)]

DEFAULT_CPU_MILLIS = 100
DEFAULT_MEMORY_MB = 256


class Resources(UserRecord):
    """What one replica reserves. 0 asks for the default, 100 thousandths of a core and 256 MiB."""

    cpu_millis: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    memory_mb: Annotated[int, Field(ge=0, le=100_000_000)] = 0

    def effective(self) -> "Resources":
        """The reservation, each 0 replaced by its default."""
        if self.cpu_millis and self.memory_mb:
            return self
        return Resources(
            cpu_millis=self.cpu_millis or DEFAULT_CPU_MILLIS, memory_mb=self.memory_mb or DEFAULT_MEMORY_MB
        )


class PortSpec(UserRecord):
    """A port that the replica listens on. `public_l4_port` opens it at the edge under that number."""

    name: Name
    container_port: Port
    protocol: Protocol = "http"
    public_l4_port: Port | None = None


class Healthcheck(UserRecord):
    """How a replica is probed. Without `type`: http if it has a port, else tcp."""

    type: Literal["http", "tcp", "exec"] | None = None
    path: Annotated[str, StringConstraints(pattern=r"^/", max_length=1024)] = "/healthz"
    port: Name | None = None
    command: tuple[Text, ...] = ()
    interval_seconds: Annotated[float, Field(gt=0, le=3600)] = 10
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 5
    grace_period_seconds: Seconds = 60
    unhealthy_threshold: Annotated[int, Field(ge=1, le=1000)] = 3

    @model_validator(mode="after")
    def _exec_has_a_command(self) -> Self:
        if self.type == "exec" and not self.command:
            raise ValueError("an exec healthcheck needs a command")
        return self


class VolumeMount(UserRecord):
    """A volume of the environment and where the replica sees it."""

    name: Name
    mount_path: Annotated[str, StringConstraints(pattern=r"^/", max_length=1024)]


class RunSpec(UserRecord):
    """One replica: image, argv (no shell), environment, ports, health, volumes.

    `env_from` names files on the node, so that no secret enters a record. Without `healthcheck` a replica is healthy
    as soon as it runs.
    """

    image: Annotated[str, StringConstraints(max_length=1024)] = ""
    command: tuple[Text, ...] = ()
    env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    env_from: tuple[Text, ...] = ()
    ports: tuple[PortSpec, ...] = ()
    healthcheck: Healthcheck | None = None
    stop_grace_seconds: Seconds = 10
    volumes: tuple[VolumeMount, ...] = ()

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        if len(self.ports) < 2 and not self.volumes and (self.healthcheck is None or self.healthcheck.port is None):
            return self  # nearly all are like that, and one is read with every assignment
        for what, names in (
            ("port", [port.name for port in self.ports]),
            ("volume", [volume.name for volume in self.volumes]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"duplicate {what} name: {', '.join(twice)}")
        if self.healthcheck and self.healthcheck.port and self.healthcheck.port not in {p.name for p in self.ports}:
            raise ValueError(f"the healthcheck names port {self.healthcheck.port!r}, which is not among the ports")
        return self

    def with_image(self, image: str) -> "RunSpec":
        return self.replaced(image=image)
