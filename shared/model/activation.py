"""`Activation`, owned by a proxy or an activator: wake an environment that is scaled to zero."""

from typing import Annotated

from pydantic import Field

from shared.model.base import Record, Time


class Activation(Record):
    """`steer.activation.<proxy>.<env>`: requests wait for the environment; `parked` is how many."""

    requested_at: Time
    parked: Annotated[int, Field(ge=0)] = 0
