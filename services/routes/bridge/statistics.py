"""The counters of a proxy → the demand by environment. Pure.

Counters start again with every reload, so what was less than before counts from zero. Rates are of the last five seconds
or more. What a proxy tells as an average only is left out: it is no percentile.
"""

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.model.live import Demand

WINDOW_SECONDS = 5.0
_SAMPLE = re.compile(r"^caddy_http_(requests_in_flight|request_duration_seconds_count)\{([^}]*)\} ([0-9.e+]+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(slots=True)
class Counts:
    """Of one name that the configuration gave: a host of Caddy, a backend of HAProxy. `idle_seconds` None = not told."""

    inflight: int = 0
    requests: int = 0
    errors: int = 0
    idle_seconds: int | None = None


class Rates:
    """Keeps the counters of the window before."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, int]] = {}
        self._began: float | None = None
        self._rates: dict[str, tuple[float, float]] = {}
        self._last: dict[str, datetime] = {}

    def demand(
        self, counts: Mapping[str, Counts], environments: Mapping[str, str], clock: float, now: datetime
    ) -> dict[str, Demand]:
        """`environments` tells whose load a name is; `clock` is monotonic, `now` the time of day."""
        known = {name: each for name, each in counts.items() if name in environments}
        self._roll(known, environments, clock, now)
        found: dict[str, Demand] = {}
        for environment in sorted(set(environments.values())):
            inflight = sum(each.inflight for name, each in known.items() if environments[name] == environment)
            rps, error_rate = self._rates.get(environment, (0.0, 0.0))
            last = self._last.get(environment)
            found[environment] = Demand(inflight=inflight, rps=rps, error_rate=error_rate, last_request_at=last)
        return found

    def _roll(self, counts: Mapping[str, Counts], environments: Mapping[str, str], clock: float, now: datetime) -> None:
        for name, each in counts.items():
            if each.idle_seconds is not None or each.inflight:
                self._seen(environments[name], now - timedelta(seconds=0 if each.inflight else each.idle_seconds or 0))
        if self._began is not None and clock - self._began < WINDOW_SECONDS:
            return
        elapsed = clock - self._began if self._began is not None else 0.0
        sums: dict[str, tuple[int, int]] = {}
        for name, each in counts.items():
            requests, errors = self._before.get(name, (each.requests, each.errors) if not elapsed else (0, 0))
            more = each.requests - requests if each.requests >= requests else each.requests
            bad = each.errors - errors if each.errors >= errors else each.errors
            total = sums.get(environments[name], (0, 0))
            sums[environments[name]] = (total[0] + more, total[1] + bad)
            if more and elapsed:
                self._seen(environments[name], now)
        self._before = {name: (each.requests, each.errors) for name, each in counts.items()}
        self._began = clock
        self._rates = {
            name: (more / elapsed, min(1.0, bad / more) if more else 0.0)
            for name, (more, bad) in sums.items()
            if elapsed
        }

    def _seen(self, environment: str, at: datetime) -> None:
        self._last[environment] = max(self._last.get(environment, at), at)


def of_haproxy(text: str) -> dict[str, Counts]:
    """The rows of backends in the answer to `show stat`."""
    lines = text.lstrip("# ").splitlines()
    return {
        row["pxname"]: Counts(
            inflight=_number(row["scur"]) + _number(row["qcur"]),
            requests=_number(row["stot"]),
            errors=_number(row["hrsp_5xx"]),
            idle_seconds=_number(row["lastsess"], -1) if _number(row["lastsess"], -1) >= 0 else None,
        )
        for row in csv.DictReader(line for line in lines if line)
        if row.get("svname") == "BACKEND"
    }


def of_caddy(text: str) -> dict[str, Counts]:
    """By host, from the metrics of the handlers that forward."""
    found: dict[str, Counts] = {}
    for name, labels, value in _samples(text.splitlines()):
        if labels.get("handler") != "subroute" or "host" not in labels:
            continue
        counts = found.setdefault(labels["host"], Counts())
        if name == "requests_in_flight":
            counts.inflight += int(value)
        else:
            counts.requests += int(value)
            counts.errors += int(value) if labels.get("code", "").startswith("5") else 0
    return found


def _samples(lines: Iterable[str]) -> Iterable[tuple[str, dict[str, str], float]]:
    for line in lines:
        found = _SAMPLE.match(line)
        if found is not None:
            yield found[1], dict(_LABEL.findall(found[2])), float(found[3])


def _number(text: str | None, otherwise: int = 0) -> int:
    return int(text) if text and text.lstrip("-").isdigit() else otherwise
