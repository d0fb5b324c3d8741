"""What was promised: every write that the log has acknowledged, and when acknowledgements came.

A write that was refused, or whose answer never came, is no promise: it may or may not be in the log.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from itertools import pairwise
from time import monotonic

import nats.errors
import orjson
from pydantic import BaseModel

from shared import codec
from shared.errors import Conflict, Unavailable
from shared.model.node import NodeControl
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.subjects import NODE_CONTROL, Key, Kind

PROBE_SECONDS = 0.05
PROBE_TIMEOUT_SECONDS = 1.0
PROBE = NODE_CONTROL.subject("nowhere")


@dataclass
class Ledger:
    """`acknowledged` by sequence: the subject and the body. `answered` are the moments of a steady probe's answers."""

    acknowledged: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    rejected: set[int] = field(default_factory=set)
    refused: int = 0
    answered: list[float] = field(default_factory=list)

    async def put(self, bus: Bus, kind: Kind, key: Key, record: BaseModel | None, *, new: bool = False) -> bool:
        """Write a record, once: whether it was acknowledged. With `new` it must not be there yet."""
        body = b"" if record is None else codec.encode(record)
        try:
            sequence = await records.put(bus, kind, key, record, expected=0 if new else None)
        except (Unavailable, Conflict):  # the second one: its first attempt was stored, and not acknowledged
            self.refused += 1
            return False
        self.acknowledged[sequence] = (kind.subject(*key), body)
        return True

    async def insist(self, bus: Bus, kind: Kind, key: Key, record: BaseModel | None) -> None:
        """Write it until it is acknowledged, as a doer does that has something to say."""
        delay = 0.0
        while not await self.put(bus, kind, key, record):
            delay = min(delay + 0.1, 1.0)
            await asyncio.sleep(delay)

    async def bad(self, bus: Bus, subject: str, body: bytes) -> None:
        """Publish what nobody can read; where that is acknowledged, it has to be in quarantine in the end."""
        sequence = await _store(bus, subject, body)
        if sequence:
            self.acknowledged[sequence] = (subject, body)
            self.rejected.add(sequence)

    async def probe(self, bus: Bus) -> None:
        """For ever: a small write every 50 ms, whether or not the one before was answered."""
        waiting: set[asyncio.Task[None]] = set()
        while True:
            task = asyncio.create_task(self._probe(bus))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            await asyncio.sleep(PROBE_SECONDS)

    async def _probe(self, bus: Bus) -> None:
        body = codec.encode(NodeControl())
        sequence = await _store(bus, PROBE, body)
        if sequence:
            self.answered.append(monotonic())
            self.acknowledged[sequence] = (PROBE, body)

    def longest_silence(self, begin: float, end: float) -> float:
        """The longest time without an acknowledgement between two moments, both of them counted."""
        moments = [begin, *(each for each in self.answered if begin < each < end), end]
        return max(after - before for before, after in pairwise(moments))


async def _store(bus: Bus, subject: str, body: bytes) -> int:
    """The sequence of what was stored; 0 where it was refused, or nobody knows."""
    if not bus.connected.is_set():
        return 0
    with contextlib.suppress(TimeoutError, OSError, nats.errors.Error):
        answer = orjson.loads((await bus.request(subject, body, within=PROBE_TIMEOUT_SECONDS)).data)
        return 0 if "error" in answer else int(answer["seq"])
    return 0
