"""The end of an end-to-end test: its whole log is read, every decision is made again, and every invariant asked."""

from services.cli.log_reading import whole_log
from services.cli.replay import replay, services
from shared.runtime.bus import Bus
from shared.runtime.settings import Settings


async def nothing_differs(bus: Bus, settings: Settings, *, deciders: int = 1) -> None:
    """No decision comes out otherwise and no invariant was broken; at least so many services have decided something.

    `settings` are those that the services ran with.
    """
    told = replay(services(settings), await whole_log(bus), settings.window_seconds, verify=True)
    assert [(each.sequence, each.differences) for each in told.different] == []
    assert list(map(str, told.breaches)) == []
    assert sum(bool(found) for found in told.decisions.values()) >= deciders, told.decisions
