"""`Domain`, owned by users and CI, kept by routes: a hostname, or a part of one, that leads to an environment."""

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from shared.model.base import Name, Text, UserRecord

Hostname = Annotated[
    str,
    StringConstraints(
        pattern=r"^(\*\.)?([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        max_length=253,
    ),
]


def _normal_prefix(value: str) -> str:
    if "//" in value or any(part in {".", ".."} for part in value.split("/")):
        raise ValueError("empty, '.' and '..' segments are not allowed")
    return value.rstrip("/")


PathPrefix = Annotated[
    str,
    StringConstraints(pattern=r"^(/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?$", max_length=1024),
    AfterValidator(_normal_prefix),
]
"""A leading-slash path without a trailing slash, matched by whole segments; empty = everything."""


class BasicAuth(UserRecord):
    username: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    password_hash: Text


class Middleware(UserRecord):
    """What a proxy does before it forwards. `password_hash` is bcrypt."""

    redirect_https: bool = True
    compress: bool = False
    basic_auth: BasicAuth | None = None
    ip_allowlist: tuple[Text, ...] = ()
    max_body_bytes: Annotated[int, Field(ge=0)] = 0
    sticky_sessions: bool = False


class Domain(UserRecord):
    """`steer.domain.<project>.<name>`. `environment` is `app/environment`; `port` names a port of its release."""

    hostname: Hostname
    path_prefix: PathPrefix = ""
    environment: Annotated[
        str,
        StringConstraints(
            pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        ),
    ]
    port: Name | None = None
    middleware: Middleware | None = None
