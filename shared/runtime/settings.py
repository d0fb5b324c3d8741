"""The settings of a process, read from the environment once, at its start.

Every variable starts with `STEER_`. What cannot be used is refused with its name and the reason, all of them at once.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from shared.errors import ConfigurationError

LogFormat = Literal["text", "json"]
Value = TypeVar("Value")

SEVEN_DAYS = 7 * 86_400
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True)
class Settings:
    """What a process is told. Paths are checked for existence; `lease_ttl_seconds` 0 takes the default of the topology.

    `nats_url` may list several servers, separated by commas. `nats_nkey` is a file with an nkey seed. `window_seconds`
    is how long every version of a record is kept. `source_url_base`, `registry_address` and `local_load` are what the
    builder stamps into its orders, `registry_url` is the registry that the sweeper deletes from.
    """

    nats_url: str = "nats://127.0.0.1:4222"
    nats_creds: str = ""
    nats_nkey: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    replicas: int = 1
    lease_ttl_seconds: int = 0
    cluster_domain: str = ""
    source_url_base: str = ""
    registry_address: str = ""
    registry_url: str = ""
    local_load: bool = False
    metrics_port: int | None = None
    log_level: str = "info"
    log_format: LogFormat = "text"
    window_seconds: int = SEVEN_DAYS

    def __post_init__(self) -> None:
        if not self.lease_ttl_seconds:
            # A cluster elects a new leader of the stream in 4 to 8 s; a lease must outlive that.
            object.__setattr__(self, "lease_ttl_seconds", 3 if self.replicas == 1 else 12)

    @property
    def servers(self) -> list[str]:
        return [url.strip() for url in self.nats_url.split(",") if url.strip()]

    @property
    def shown_url(self) -> str:
        """The servers without names and passwords, for texts."""
        return ", ".join(_hidden(url) for url in self.servers)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Settings":
        """Raises `ConfigurationError` that names every variable that cannot be used, and why."""
        values: dict[str, Any] = {}
        problems: list[str] = []
        for variable, (name, parse) in VARIABLES.items():
            text = environ.get(variable, "").strip()
            if not text:
                continue
            try:
                values[name] = parse(text)
            except ValueError as error:
                problems.append(f"{variable}={_hidden(text)!r}: {error}")
        if bool(values.get("tls_cert")) != bool(values.get("tls_key")):
            problems.append("STEER_TLS_CERT and STEER_TLS_KEY go together: one of them is missing")
        if problems:
            raise ConfigurationError("; ".join(problems))
        return cls(**values)


def _hidden(text: str) -> str:
    """An address without name and password."""
    return re.sub(r"//[^/@]*@", "//", text)


def _url(text: str) -> str:
    for url in text.split(","):
        if not url.strip().startswith(("nats://", "tls://")):
            raise ValueError("not a NATS address; nats://host:4222 or tls://host:4222, several separated by commas")
    return text


def _file(text: str) -> str:
    if not Path(text).is_file():
        raise ValueError("no such file")
    return text


def _number(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise ValueError(f"not a whole number from {least} to {most}")
        return int(text)

    return parse


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"not one of {', '.join(choices)}")
        return text

    return parse


def _truth(text: str) -> bool:
    return _one_of("true", "false")(text) == "true"


def _replicas(text: str) -> int:
    return int(_one_of("1", "3", "5")(text))


VARIABLES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "STEER_NATS_URL": ("nats_url", _url),
    "STEER_NATS_CREDS": ("nats_creds", _file),
    "STEER_NATS_NKEY": ("nats_nkey", _file),
    "STEER_TLS_CA": ("tls_ca", _file),
    "STEER_TLS_CERT": ("tls_cert", _file),
    "STEER_TLS_KEY": ("tls_key", _file),
    "STEER_REPLICAS": ("replicas", _replicas),
    "STEER_LEASE_TTL_SECONDS": ("lease_ttl_seconds", _number(1, 3600)),
    "STEER_CLUSTER_DOMAIN": ("cluster_domain", str),
    "STEER_SOURCE_URL_BASE": ("source_url_base", str),
    "STEER_REGISTRY_ADDRESS": ("registry_address", str),
    "STEER_REGISTRY_URL": ("registry_url", str),
    "STEER_LOCAL_LOAD": ("local_load", _truth),
    "STEER_METRICS_PORT": ("metrics_port", _number(0, 65_535)),
    "STEER_LOG_LEVEL": ("log_level", _one_of(*LOG_LEVELS)),
    "STEER_LOG_FORMAT": ("log_format", _one_of("text", "json")),
    "STEER_WINDOW_SECONDS": ("window_seconds", _number(60, 10 * 366 * 86_400)),
}
"""Each variable, the setting it fills, and how it is read."""
