"""Whether what a name says is there at all: an empty answer about it means something else when it is not."""

from services.cli import names
from services.cli.exits import Failed
from shared import subjects
from shared.model.environment import Environment
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.subjects import Key

BESIDE = frozenset({
    subjects.ACTIVE, subjects.SCALE, subjects.ROUTED_ENVIRONMENT, subjects.ROUTE_INTERNAL,
    subjects.DECISION, subjects.NOTICE,
})  # fmt: skip
"""Kinds that carry the key of a thing, and may be left when it is gone."""


async def environment(bus: Bus, key: Key) -> Environment:
    """The environment of a key. Raises `Failed` where there is none."""
    version = await records.get(bus, subjects.ENVIRONMENT, key)
    if version is None or not isinstance(version.record, Environment):
        raise Failed(f"there is no environment {names.joined(key)}")
    return version.record


async def volume(bus: Bus, key: Key) -> None:
    """Raises `Failed` where neither the environment names such a volume, nor one has been used or kept."""
    there = await environment(bus, key[:3])
    named = {each.name for each in there.service.run.volumes}
    kinds = (subjects.VOLUME, subjects.VOLUME_STATUS)
    if key[3] not in named and not await records.load(bus, [kind.subject(*key) for kind in kinds]):
        raise Failed(f"there is no volume {key[3]} in environment {names.joined(key[:3])}")


async def anything(bus: Bus, key: Key) -> None:
    """Raises `Failed` where nothing has this name, nor one that begins with it."""
    wanted = []
    for kind in subjects.KINDS:
        if kind in BESIDE:
            continue
        if kind.open_ended or len(kind.tokens) == len(key):
            wanted.append(kind.subject(*key))
        if len(kind.tokens) > len(key) and len(key) < len(subjects.ENVIRONMENT.tokens):
            wanted.append(kind.subject(*key, ">"))
    if not await records.load(bus, wanted):
        what = "environment" if len(key) == len(subjects.ENVIRONMENT.tokens) else "node, or anything else, called"
        raise Failed(f"there is no {what} {names.joined(key)}")
