"""Slots: small files, each with the address of one endpoint, from which Caddy reads where to send a request.

Any change of Caddy's configuration starts its HTTP server anew, and the one before closes, unanswered, every connection
whose request it has not read by then. So what changes all the time is kept out of the configuration: an upstream is
`{file.<directory>/<group>/<n>}`, read at each request, and an endpoint change replaces files. Only a change of hosts,
policies or certificates is a new configuration.

A group belongs to one site as it is: with other middleware or for another environment it has another name, so that an
endpoint never serves under a policy that is not its own. A group has 16 slots, or four times as many until there are two
for each endpoint; a slot keeps its endpoint while it can, so that few files change.

Sites with sticky sessions have no slots: Caddy binds a session to an upstream as it is written, and a slot may be another
endpoint's tomorrow. Their sessions stay with their replicas, and their endpoint changes are new configurations.
"""

from collections import Counter
from collections.abc import Sequence

from services.routes.render.plan import Site, code

FEWEST, STEP = 16, 4


def group(site: Site) -> str:
    """The name of the site's group."""
    rules = (site.middleware.model_dump_json(), repr(site.allowlist), repr(site.auth), repr(site.rate_limit))
    return f"{site.name}-{code(site.environment, *rules)}-{slots(len(site.endpoints))}"


def slots(endpoints: int) -> int:
    """How many slots a group for so many endpoints has."""
    count = FEWEST
    while count < 2 * endpoints:
        count *= STEP
    return count


def allot(before: Sequence[str], addresses: Sequence[str]) -> tuple[str, ...]:
    """The address of each slot: every one in as many slots as the next, or in one more, and as few moved as can be."""
    count = slots(len(addresses))
    had = Counter(before)
    share, more = divmod(count, len(addresses))
    by_slots = sorted(addresses, key=lambda address: (-had[address], address))
    left = {address: share + (place < more) for place, address in enumerate(by_slots)}
    kept: list[str | None] = [None] * count
    for slot, address in enumerate(before[:count]):
        if left.get(address, 0):
            kept[slot] = address
            left[address] -= 1
    rest = (address for address in by_slots for _ in range(left[address]))
    return tuple(address if address is not None else next(rest) for address in kept)
