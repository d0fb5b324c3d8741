"""Which endpoint: of two drawn at random, the one with fewer requests under way; none that is full."""

from collections.abc import Mapping, Sequence
from random import Random

from shared.model.route import Endpoint

DRAWS = 8
"""So often two are drawn before all are looked at: enough unless nearly all are full."""


def choose(
    endpoints: Sequence[Endpoint], inflight: Mapping[str, int], limit: int, random: Random, avoid: frozenset[str]
) -> Endpoint | None:
    """None where every endpoint has `limit` requests (0 = no limit). Those to avoid are taken if no other is there."""
    wanted = [each for each in endpoints if each.address not in avoid] or list(endpoints)
    for _ in range(min(DRAWS, len(wanted))):
        drawn = (random.choice(wanted), random.choice(wanted))
        found = min(drawn, key=lambda each: inflight.get(each.address, 0))
        if _free(found, inflight, limit):
            return found
    free = [each for each in wanted if _free(each, inflight, limit)]
    return min(free, key=lambda each: inflight.get(each.address, 0), default=None)


def _free(endpoint: Endpoint, inflight: Mapping[str, int], limit: int) -> bool:
    return not limit or inflight.get(endpoint.address, 0) < limit
