"""The faults, one function each. Each is over when what was hit works again: the next one finds everything whole."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shared import subjects
from shared.model.domain import Domain
from shared.runtime.bus import Bus
from shared.runtime.jetstream import api
from shared.runtime.lease import NO_ANSWER
from shared.subjects import STREAM
from tests.faults.audit import furthest_from_the_server, newest_term, routed_version
from tests.faults.clock import WrongClock, compiler
from tests.faults.processes import NAMES, Instance, term_of
from tests.faults.scene import Scene
from tests.faults.storm import Storm
from tests.faults.users import APPS
from tests.faults.waiting import until

Trial = Callable[[Scene], Awaitable[None]]
PAUSED_SERVER_SECONDS = 12.0
FOLLOWERS = 200
FLOOD_MESSAGES = 100
CLOCK_JUMPS_SECONDS = (300, -300, 86_400)
CLOCK_BOUND_SECONDS = 5
NO_QUORUM_SECONDS = 5.0
NO_SPACE = "no space left on device"
NO_SMALL_DISK = "a disk that is really full: no file system can be mounted here"
REFUSED = ("maximum bytes exceeded", "insufficient resources")


# -- leaders ------------------------------------------------------------------------------------------------------------


async def leaders_are_killed_one_by_one(on: Scene) -> None:
    for name in NAMES:
        leader = await on.services.leader(on.bus, name)
        with on.inject("kill -9 of a service's leader", name, leader_of=name):
            await leader.kill()
            await _led_by_another(on, name, leader)
        await on.services.restore()


async def leaders_are_paused_one_by_one(on: Scene) -> None:
    for name in NAMES:
        leader = await on.services.leader(on.bus, name)
        with on.inject("SIGSTOP of a service's leader, SIGCONT after the takeover", name, leader_of=name):
            await leader.pause()
            await _led_by_another(on, name, leader)
            leader.resume()


async def leaders_are_killed_at_once(on: Scene) -> None:
    await _all_leaders(on, "kill -9 of a service's leader", Instance.kill)
    await on.services.restore()


async def leaders_are_paused_at_once(on: Scene) -> None:
    hit = await _all_leaders(on, "SIGSTOP of a service's leader, SIGCONT after the takeover", Instance.pause)
    for leader in hit:
        leader.resume()


async def _all_leaders(on: Scene, fault: str, strike: Callable[[Instance], Awaitable[None]]) -> Sequence[Instance]:
    """Every service loses its leader within a moment: on a cluster each takeover takes a lease's 12 s."""

    async def one(name: str, leader: Instance) -> None:
        with on.inject(fault, name, leader_of=name):
            await strike(leader)
            await _led_by_another(on, name, leader)

    leaders = {name: await on.services.leader(on.bus, name) for name in NAMES}
    await asyncio.gather(*(one(name, leader) for name, leader in leaders.items()))
    return tuple(leaders.values())


async def _all_led(on: Scene) -> None:
    for name in NAMES:
        await on.services.leader(on.bus, name)


async def _led_by_another(on: Scene, name: str, old: Instance) -> None:
    async def led() -> bool:
        term = await term_of(on.bus, name)
        return term is not None and f"-{old.process.pid}-" not in term.holder

    await until(led, f"another instance of {name} leads")


# -- servers ------------------------------------------------------------------------------------------------------------


async def every_server_is_killed(on: Scene) -> None:
    async for name, told in _in_turn(on):
        with on.inject("kill -9 of a server", told):
            on.servers.kill(name)
            await _goes_on(on, name)
            on.servers.start(name)
            await _whole(on)


async def every_server_is_paused(on: Scene) -> None:
    async for name, told in _in_turn(on):
        with on.inject(f"SIGSTOP of a server for {PAUSED_SERVER_SECONDS:g} s", told):
            await on.servers.pause(name)
            await asyncio.sleep(PAUSED_SERVER_SECONDS)
            on.servers.resume(name)
            await _whole(on)


async def every_server_is_restarted(on: Scene) -> None:
    async for name, told in _in_turn(on):
        with on.inject("restart of a server", told):
            await on.servers.stop(name)
            on.servers.start(name)
            await _whole(on)


async def two_of_three_servers_are_lost(on: Scene) -> None:
    """Nothing can be written, and nothing read, until one of them is back."""
    names = on.servers.names[1:]
    with on.inject(f"kill -9 of two of three servers, back after {NO_QUORUM_SECONDS:g} s", "no majority left"):
        for name in names:
            on.servers.kill(name)
        await asyncio.sleep(NO_QUORUM_SECONDS)
        on.servers.start(*names)
        await _whole(on)


async def _in_turn(on: Scene) -> AsyncIterator[tuple[str, str]]:
    """Every server once: first whoever leads the log, then whoever leads the cluster."""
    left = list(on.servers.names)
    while left:
        log, cluster = await on.servers.leads_the_log(on.bus), await on.servers.leads_the_cluster()
        name = next((each for each in (log, cluster) if each in left), left[0])
        left.remove(name)
        roles = [what for what, who in (("the log", log), ("the cluster", cluster)) if who == name]
        if len(on.servers.names) == 1:
            told = "the only one"
        else:
            told = f"one of three, which led {' and '.join(roles)}" if roles else "one of three, which led neither"
        yield name, told


async def _goes_on(on: Scene, killed: str) -> None:
    """A cluster goes on without the server; one server alone is just away."""
    if len(on.servers.names) > 1:
        await on.acknowledged_again()


async def _whole(on: Scene) -> None:
    await on.acknowledged_again()
    await on.servers.whole(on.bus)


# -- limits -------------------------------------------------------------------------------------------------------------


async def the_log_is_full(on: Scene) -> None:
    await _all_led(on)
    config = (await api(on.bus, f"STREAM.INFO.{STREAM}"))["config"]
    before = _told(on, REFUSED)
    used = int((await api(on.bus, f"STREAM.INFO.{STREAM}"))["state"]["bytes"])
    with on.inject("the log's stream has reached its max_bytes", "publishing is refused"):
        await _limited(on.bus, {**config, "max_bytes": used + 4096})
        await _services_say(on, REFUSED, before, more_than=1)
        await _limited(on.bus, config)
        await on.acknowledged_again()


async def the_store_is_full(on: Scene) -> None:
    """Another stream takes the last room on the server; then it is deleted."""
    await _all_led(on)
    before = _told(on, REFUSED)
    with on.inject("the server's max_file_store is used up", "publishing is refused"):
        await api(on.bus, "STREAM.CREATE.FILLER", {"name": "FILLER", "subjects": ["filler"], "storage": "file"})
        body = b"x" * 1_000_000
        while b'"error"' not in (await on.bus.request("filler", body, within=5)).data:
            pass
        await _services_say(on, REFUSED, before, more_than=1)
        await api(on.bus, "STREAM.DELETE.FILLER")
        await on.acknowledged_again()


async def the_disk_is_full(on: Scene) -> None:
    """The server answers no write any more, room or not, until it is started again. Nobody leads meanwhile."""
    name = on.servers.names[0]
    if not on.servers.disks[name].small:
        on.left_out.append(NO_SMALL_DISK)
        return
    await _all_led(on)
    before = _told(on, (NO_ANSWER,))
    with on.inject("the server's disk is full to the last byte", "started again, with room, when nobody leads"):
        on.servers.disks[name].fill()
        await _services_say(on, (NO_ANSWER,), before, more_than=len(NAMES) - 1)
        await until(lambda: _nobody_leads(on), "nobody leads")
        on.servers.disks[name].free()
        await on.servers.stop(name)
        on.servers.start(name)
        await _whole(on)
        await _all_led(on)


async def one_disk_of_three_is_full(on: Scene) -> None:
    """That server is out of it; the other two go on. It comes back when it is started again with room."""
    name = await on.servers.leads_the_log(on.bus)
    if not on.servers.disks[name].small:
        on.left_out.append(NO_SMALL_DISK)
        return
    with on.inject("a server's disk is full to the last byte", "one of three, which led the log"):
        before = on.servers.log(name).count(NO_SPACE)
        on.servers.disks[name].fill()
        await until(lambda: on.servers.log(name).count(NO_SPACE) > before, "it finds no space left")

        async def replaced() -> bool:
            return await on.servers.leads_the_log(on.bus) != name

        await until(replaced, "another server leads the log")
        await on.acknowledged_again()
        on.servers.disks[name].free()
        await on.servers.stop(name)
        on.servers.start(name)
        await _whole(on)


async def _nobody_leads(on: Scene) -> bool:
    return not any([await each.leads() for each in on.services.instances if each.runs])


async def _limited(bus: Bus, config: dict[str, object]) -> None:
    await api(bus, f"STREAM.UPDATE.{STREAM}", config)


def _told(on: Scene, reasons: Sequence[str]) -> dict[Path, int]:
    """How often each instance has said one of these reasons for which the log takes nothing."""
    return {each.log: sum(map(each.said().count, reasons)) for each in on.services.instances}


async def _services_say(on: Scene, reasons: Sequence[str], before: dict[Path, int], *, more_than: int) -> None:
    def said() -> bool:
        told = _told(on, reasons)
        return len({each.service for each in on.services.instances if told[each.log] > before[each.log]}) > more_than

    await until(said, "services say why the log takes nothing")


# -- the way to the bus, and time ---------------------------------------------------------------------------------------


async def a_leader_does_not_read(on: Scene) -> None:
    """It is stopped under a flood of telemetry; the server gives up on it, and it comes back."""
    leader = await on.services.leader(on.bus, "scheduler")
    before = _cut_off(on)
    with on.inject("slow consumer: a leader that does not read is cut off", "scheduler"):
        await leader.pause()
        body = b"x" * 500_000
        for _ in range(FLOOD_MESSAGES):
            await on.bus.nc.publish(subjects.live_node("flood"), body)
            await on.bus.nc.flush()
        await until(lambda: _cut_off(on) > before, "the server cuts it off")
        leader.resume()
        await on.services.leader(on.bus, "scheduler")
        await on.acknowledged_again()


def _cut_off(on: Scene) -> int:
    return sum(on.servers.log(name).count("Slow Consumer") for name in on.servers.names)


async def followers_come_back_at_once(on: Scene) -> None:
    """Each has its own connection. Once they are back, they take in what is new."""
    with on.users.at_rest():
        storm = await Storm.start(on.settings, FOLLOWERS)
        await until(lambda: storm.said["oldest"] > 0, "every follower has the routes")
        with on.inject(f"reconnect storm: {FOLLOWERS} followers and every service at once", "kill -9 of every server"):
            for name in on.servers.names:
                on.servers.kill(name)
            await until(lambda: storm.said["connected"] == 0, "every follower is cut off")
            on.servers.start()
            await _whole(on)
            await until(lambda: storm.said["connected"] == FOLLOWERS, "every follower is back")
            before = await routed_version(on.bus)
            domain = Domain(hostname="storm.example.com", environment=f"{APPS[0]}/production", port="http")
            await on.ledger.insist(on.bus, subjects.DOMAIN, ("shop", "storm"), domain)
            await until(lambda: storm.said["oldest"] > before, "every follower has what is new")
        await storm.stop()


async def a_clock_jumps(on: Scene) -> None:
    """A scheduler whose date is wrong leads, and its date is set back and forth. What it says of the time stays true."""
    if compiler() is None:
        on.left_out.append("clock jumps of a process: there is no C compiler")
        return
    clock = WrongClock(on.folder, CLOCK_JUMPS_SECONDS[0])
    old = [each for each in on.services.instances if each.service == "scheduler" and each.runs]
    odd = await on.services.add("scheduler", environment=clock.environment)
    await until(lambda: "the log is loaded" in odd.said(), "it has loaded the log")
    with on.inject(
        f"the wall clock of a leader is {CLOCK_JUMPS_SECONDS[0]} s ahead, then jumps twice", "scheduler", "scheduler"
    ):
        for each in old:
            await each.kill()
        assert await on.services.leader(on.bus, "scheduler") is odd
        term = await term_of(on.bus, "scheduler")
        assert term is not None and term.opened_at > datetime.now(UTC) + timedelta(seconds=60), "its date is right"
        for seconds in CLOCK_JUMPS_SECONDS[1:]:
            clock.jump(seconds)
            await asyncio.sleep(2)  # it decides under the new date
        worst = await furthest_from_the_server(on.bus, "scheduler", await newest_term(on.bus, "scheduler"))
        assert worst < timedelta(seconds=CLOCK_BOUND_SECONDS), f"a decision is {worst} off the server's time"
    await on.services.restore()
    await odd.kill()
    await on.services.restore()
