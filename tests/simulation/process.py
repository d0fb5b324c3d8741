"""A process that may crash, start again, and be stopped for a while without noticing (a zombie).

Everything that it does later goes through `later` or `guard`: what a crashed process had planned never happens, what a
paused one had planned happens when it goes on, in the order it came.
"""

from __future__ import annotations  # the annotations of `guarded` would be evaluated at every call

from collections.abc import Callable
from typing import ParamSpec

from .clock import Action, Timeline

P = ParamSpec("P")


class Process:
    def __init__(self, name: str, timeline: Timeline) -> None:
        self.name = name
        self.timeline = timeline
        self.up = False
        self.paused = False
        self._life = 0
        self._backlog: list[Action] = []

    def start(self) -> None:
        if not self.up:
            self.up = True
            self.started()

    def started(self) -> None:
        """What a new process does first."""

    def crash(self) -> None:
        """Everything in memory is gone; what was sent is on its way."""
        self.up = self.paused = False
        self._life += 1
        self._backlog.clear()

    def pause(self) -> None:
        self.paused = self.up

    def resume(self) -> None:
        self.paused = False
        backlog, self._backlog = self._backlog, []
        for action in backlog:
            self.timeline.after(0, action)

    def later(self, seconds: float, action: Action) -> None:
        life = self._life

        def happens() -> None:
            if self._life == life:
                if self.paused:
                    self._backlog.append(happens)
                else:
                    action()

        self.timeline.after(seconds, happens)

    def guard(self, action: Callable[P, None]) -> Callable[P, None]:
        """The same action, for as long as this life of the process lasts, and never while it is paused."""
        life = self._life

        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            if self._life != life:
                return
            if self.paused:
                self._backlog.append(lambda: guarded(*args, **kwargs))
            else:
                action(*args, **kwargs)

        return guarded
