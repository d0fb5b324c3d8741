"""`Release` and `DeployRequest`, owned by users and CI, kept by the scheduler.

A release alone runs nothing: a deploy request does.
"""

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from shared.model.base import Text, Ulid, UserRecord
from shared.model.environment import ServiceSpec

Platform = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./-]+$", max_length=64)]
VersionNumber = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,17}$")]
"""A positive decimal, as it stands in the subject."""


class Release(UserRecord):
    """`steer.release.<env>.<version>`: immutable. Its image, or the build that makes it."""

    image: Annotated[str, StringConstraints(max_length=1024)] = ""
    build: Ulid | None = None
    platforms: tuple[Platform, ...] = ()
    service: ServiceSpec = ServiceSpec()
    source: dict[str, Text] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_an_image_or_a_build(self) -> Self:
        if not self.image and self.build is None:
            raise ValueError("a release needs an image or a build")
        return self


class DeployRequest(UserRecord):
    """`steer.deploy.<env>.<id>`: run this version in the environment. `canceled` takes it back."""

    version: VersionNumber
    rollback: bool = False
    canceled: bool = False
