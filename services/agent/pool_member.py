"""One function in a pool host: its code, its environment, and what state it is in.

    loading → ready ⇄ restarting      loading, restarting → failed

A member loads in a thread of its own, so that one that hangs or crashes at import holds up nobody. One that ends its
process in a call (`sys.exit`) ends only itself and is loaded anew, each time after a longer wait.

Members share a process, so they are kept apart from accidents, not from each other: each sees its own variables in
`os.environ` and its own copy of its modules, but memory, files and imported packages are everybody's. Modules of one
artifact import each other relatively (`from . import prices`), for two artifacts may each have a `prices`. A thread
that a member starts by itself, and a program that it runs, sees the variables of the host.
"""

import asyncio
import contextvars
import importlib
import inspect
import logging
import os
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

log = logging.getLogger(__name__)

MemberState = Literal["loading", "ready", "restarting", "failed"]
PACKAGE = "steer_member_"
RESTART_SECONDS = (0.1, 30.0)

_current: contextvars.ContextVar[dict[str, str] | None] = contextvars.ContextVar("environment", default=None)


class Environment(MutableMapping[str, str]):
    """Takes the place of `os.environ`: to each member its own variables, to all others those of the process."""

    def __init__(self, base: MutableMapping[str, str]) -> None:
        self._base = base

    def _mine(self) -> MutableMapping[str, str]:
        found = _current.get()
        return self._base if found is None else found

    def __getitem__(self, name: str) -> str:
        return self._mine()[name]

    def __setitem__(self, name: str, value: str) -> None:
        self._mine()[name] = value

    def __delitem__(self, name: str) -> None:
        del self._mine()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._mine()))

    def __len__(self) -> int:
        return len(self._mine())

    def copy(self) -> dict[str, str]:
        return dict(self._mine())

    def __or__(self, other: Mapping[str, str]) -> dict[str, str]:
        return {**self._mine(), **other}

    def __ror__(self, other: Mapping[str, str]) -> dict[str, str]:
        return {**other, **self._mine()}


def install_environment() -> None:
    """From now on `os.environ` and `os.getenv` tell members their own variables. A second call changes nothing."""
    if not isinstance(os.environ, Environment):
        os.environ = Environment(os.environ)  # type: ignore[assignment]  # noqa: B003 - that is the point


class NotReady(Exception):
    """The member cannot be called now; the text says in which state it is and why."""


class TookTooLong(Exception):
    """A call has not ended in its time. It cannot be stopped, and goes on in the background."""


@dataclass
class Outcome:
    """What a call has come to: a value, or what it raised."""

    value: Any = None
    error: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)


class Member:
    """`start` loads it in the background; `call` works once it is ready."""

    def __init__(
        self,
        name: str,
        handler: str,
        artifact: str,
        environment: dict[str, str],
        call_seconds: float,
        load_seconds: float,
    ) -> None:
        self.name = name
        self._handler, self._artifact = handler, artifact
        self._environment = environment
        self._call_seconds, self._load_seconds = call_seconds, load_seconds
        self._lock = threading.Lock()
        self._state: MemberState = "loading"
        self._error = ""
        self._function: Callable[[Any], Any] | None = None
        self._since = time.monotonic()
        self._loads = 0
        self._restarts = 0

    def start(self) -> None:
        threading.Thread(target=self._load, name=f"load {self.name}", daemon=True).start()

    @property
    def state(self) -> tuple[MemberState, str]:
        """The state, and the reason of a failure. One that loads for too long has failed, until it is loaded."""
        with self._lock:
            if self._state in ("loading", "restarting") and time.monotonic() - self._since > self._load_seconds:
                return "failed", f"load timed out: not loaded within {self._load_seconds:g} s"
            return self._state, self._error

    def call(self, event: Any) -> Any:
        """Call the function. Raises what it raises, `NotReady` or `TookTooLong`."""
        state, error = self.state
        function = self._function
        if state != "ready" or function is None:
            raise NotReady(f"{self.name} is {state}" + (f": {error}" if error else ""))
        outcome = Outcome()
        threading.Thread(
            target=self._run, args=(function, event, outcome), name=f"call {self.name}", daemon=True
        ).start()
        if not outcome.done.wait(self._call_seconds):
            raise TookTooLong(f"{self.name} has not answered within {self._call_seconds:g} s")
        if outcome.error is None:
            self._restarts = 0
            return outcome.value
        if not isinstance(outcome.error, Exception):
            self._restart(outcome.error)
            raise NotReady(f"{self.name} ended with {_text(outcome.error)} and is started anew")
        raise outcome.error

    def _run(self, function: Callable[[Any], Any], event: Any, outcome: Outcome) -> None:
        _current.set(self._environment)
        try:
            value = function(event)
            outcome.value = asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value
        except BaseException as error:
            outcome.error = error
        finally:
            outcome.done.set()

    def _load(self) -> None:
        _current.set(self._environment)
        try:
            self._loads += 1
            function = load(f"{PACKAGE}{self.name.replace('-', '_')}_{self._loads}", self._artifact, self._handler)
        except BaseException as error:
            log.error("%s cannot be loaded: %s", self.name, _text(error), exc_info=error)
            self._become("failed", _text(error))
        else:
            log.info("%s is ready", self.name)
            self._become("ready", "", function)

    def _restart(self, error: BaseException) -> None:
        """Load it anew after a wait; calls that end at the same time restart it once."""
        with self._lock:
            if self._state != "ready":
                return
            self._state, self._error, self._function = "restarting", _text(error), None
            delay = min(RESTART_SECONDS[0] * 2**self._restarts, RESTART_SECONDS[1])
            self._since = time.monotonic() + delay
            self._restarts += 1
        log.error("%s has ended with %s; it is started anew in %g s", self.name, _text(error), delay)
        timer = threading.Timer(delay, self._load)
        timer.daemon = True
        timer.start()

    def _become(self, state: MemberState, error: str, function: Callable[[Any], Any] | None = None) -> None:
        with self._lock:
            self._state, self._error, self._function = state, error, function


async def _awaited(value: Any) -> Any:
    return await value


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def load(package: str, artifact: str, handler: str) -> Callable[[Any], Any]:
    """The function that a handler names in an artifact, loaded into a package of its own.

    The artifact is a directory, whose `module.function` the handler names (without a module: `main`), or a file of one
    module. Raises what the code raises at import, `ImportError` or `AttributeError`.
    """
    path = Path(artifact)
    module, _, name = handler.rpartition(".")
    if path.suffix == ".py":
        if module not in ("", path.stem):
            raise ImportError(f"handler {handler!r}: the artifact {artifact} is the module {path.stem}")
        path, module = path.parent, path.stem
    if not path.is_dir():
        raise ImportError(f"artifact {artifact}: no such file or directory")
    parent = types.ModuleType(package)
    parent.__path__ = [str(path.resolve())]
    sys.modules[package] = parent
    importlib.invalidate_caches()
    function = getattr(importlib.import_module(f"{package}.{module or 'main'}"), name)
    if not callable(function):
        raise ImportError(f"handler {handler!r}: {name} cannot be called")
    found: Callable[[Any], Any] = function
    return found
