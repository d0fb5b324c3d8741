"""What a world is about. None has everything: a seed chooses, so that each is cheap and each part comes often."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Mix:
    """Which stories are told beside that of plain deployments."""

    builds: bool = False
    """Releases that a build makes."""
    functions: bool = False
    """Functions, in pools that the scheduler places."""
    scaling: bool = False
    """Environments whose width follows their demand, and that sleep without any."""
    snapshots: bool = False
    """Snapshots of the volume, on a schedule and on request."""
    environments: int = 4
    """How many there are; the one with a volume is the last of four."""


PLAIN = Mix()


def mixed(random: Random) -> Mix:
    """Two of the stories in most worlds, all of them or none in some."""
    names = ("builds", "functions", "scaling", "snapshots")
    count = random.choices((0, 1, 2, 3, 4), (1, 3, 5, 2, 1))[0]
    told = random.sample(names, count)
    environments = 4 if "snapshots" in told else random.choice((2, 3, 4))
    return Mix(**dict.fromkeys(told, True), environments=environments)
