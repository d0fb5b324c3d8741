"""`Volume`, owned by users and CI, kept by the scheduler; `VolumeStatus`, owned by the scheduler.

A volume is a directory on one node. All volumes of an environment are pinned to the same node; the data does not move
with the pin.
"""

from typing import Annotated, Literal

from pydantic import Field

from shared.model.base import Name, Record, UserRecord


class Volume(UserRecord):
    """`steer.volume.<env>.<name>`: `node` asks for another pin; `lost_node` declares the node lost that it names, so
    that its confirmation is not waited for."""

    node: Name | None = None
    lost_node: Name | None = None


class VolumeStatus(Record):
    """`steer.volume_status.<env>.<name>`: the pin. `holder` is the assignment that may use it, `volume_epoch` the number
    below which an agent refuses to start one."""

    node: str
    state: Literal["active", "node_lost"] = "active"
    volume_epoch: Annotated[int, Field(ge=0)] = 0
    holder: str = ""
