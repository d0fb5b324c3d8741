"""What a process is put into, and which of its safeguards a test leaves out."""

from dataclasses import dataclass
from random import Random

from .bus import Bus
from .clock import Timeline
from .lease import Leases
from .log import Log


@dataclass(frozen=True, slots=True)
class Flaws:
    """Safeguards that a test leaves out."""

    fence: bool = True
    atomic: bool = True
    await_term: bool = True


NO_FLAWS = Flaws()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a process is put into."""

    timeline: Timeline
    random: Random
    log: Log
    bus: Bus
    leases: Leases
