"""Snapshots on a simulated node: made when an order asks, deleted when a prune names them.

Level-triggered, as the agent's own are: what is made is whole, what was under way when the agent ended is made again, and
what no order and no prune speaks of is left alone. The files are the machine's: they outlive the agent.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Literal

from shared.model.snapshot import SnapshotOrder, SnapshotPrune, SnapshotReport
from shared.subjects import SNAPSHOT_ORDER, SNAPSHOT_PRUNE, SNAPSHOT_REPORT, Key

from .faults import Rates
from .log import Log
from .wire import put

if TYPE_CHECKING:
    from .agents import Agent


class NodeSnapshots:
    def __init__(self, agent: Agent, log: Log, random: Random, rates: Rates) -> None:
        self._agent, self._log, self._random, self._rates = agent, log, random, rates
        self._making: set[Key] = set()
        self.files: set[Key] = set()

    def look_soon(self) -> None:
        """Something about this node's snapshots was stored, or the agent has been started."""
        self._agent.later(self._random.uniform(0.001, 0.1), self._look)

    def forget(self) -> None:
        """The agent has ended: what it was making is not made."""
        self._making.clear()

    def _look(self) -> None:
        if self._agent.cut_off:
            self._agent.later(1, self._look)
            return
        node = self._agent.name
        reports = {key: r for key, r in self._log.current(SNAPSHOT_REPORT).items() if key[0] == node}
        pruned = {
            (*key, id)
            for key, prune in self._log.current(SNAPSHOT_PRUNE).items()
            if key[0] == node and isinstance(prune, SnapshotPrune)
            for id in prune.ids
        }
        orders = {key: order for key, order in self._log.current(SNAPSHOT_ORDER).items() if key[0] == node}
        for key in sorted(reports.keys() - orders.keys() | pruned):
            self._drop(key, in_a_prune=key in pruned, reported=key in reports)
        for key, order in orders.items():
            report = reports.get(key)
            assert isinstance(order, SnapshotOrder) and (report is None or isinstance(report, SnapshotReport))
            if key not in pruned:
                self._about(key, order, report)

    def _drop(self, key: Key, *, in_a_prune: bool, reported: bool) -> None:
        self._making.discard(key)
        if in_a_prune:
            self.files.discard(key)
        if reported:
            self._log.publish(put(SNAPSHOT_REPORT, key, None))

    def _about(self, key: Key, order: SnapshotOrder, report: SnapshotReport | None) -> None:
        open_ = report is None or report.state == "running"
        if order.state == "running" and open_ and key not in self._making:
            self._making.add(key)
            self._report(key, "running")
            self._agent.later(self._random.choice((0.2, 2.0, 8.0, 60.0)), partial(self._made, key))
        elif order.state != "running" and report is not None and report.state == "running":
            self._making.discard(key)
            self._report(key, "failed")

    def _made(self, key: Key) -> None:
        """Its report may come late, when the order is over or gone."""
        if key in self._making:
            if self._agent.cut_off:
                self._agent.later(1, partial(self._made, key))
                return
            self._making.discard(key)
            failed = self._random.random() < self._rates.failed_start
            if not failed:
                self.files.add(key)
            self._report(key, "failed" if failed else "complete")

    def _report(self, key: Key, state: Literal["running", "complete", "failed"]) -> None:
        message = put(SNAPSHOT_REPORT, key, SnapshotReport(state=state, at=self._agent.wall()))
        self._log.publish(message)
        if self._random.random() < self._rates.duplicate_report:
            self._log.publish(message)
