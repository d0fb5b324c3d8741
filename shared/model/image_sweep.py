"""`ImageSweep`, owned by the scheduler: an image that no kept release needs. `ImageSwept`, owned by the sweeper."""

from typing import Literal

from shared.model.base import Record, Time


class ImageSweep(Record):
    """`steer.image_sweep.<project>.<app>.<tag>`: delete this tag; its digest too, unless it is among `keep_digests`."""

    image: str
    release: str
    keep_digests: tuple[str, ...] = ()
    ordered_at: Time


class ImageSwept(Record):
    """`steer.image_swept.<project>.<app>.<tag>`: what became of a sweep. A failed one is tried again by the sweeper."""

    state: Literal["done", "failed"]
    error: str = ""
    at: Time
