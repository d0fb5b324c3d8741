"""Nobody is ever in a pool that it was not allowed in: each member has a row that it was meant to have there."""

from collections.abc import Sequence

import orjson

from services.pooler.access import PoolKey, pool_of
from services.pooler.hosting import row
from shared.errors import InvalidRecord, InvalidSubject
from shared.model.function import Function, FunctionAccess
from shared.model.pool import Pool
from shared.service import Version
from shared.subjects import ACCESS, FUNCTION, POOL, Key

from .function_users import NS
from .invariants import Violation
from .log import Log
from .wire import Stored


class MembersAreMeant:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._functions: dict[str, Function | None] = {}
        self._access: dict[str, FunctionAccess | None] = {}
        self._allowed: set[tuple[str, str]] = set()

    def __call__(self, stored: Sequence[Stored]) -> None:
        for message in stored:
            if message.kind in (FUNCTION, ACCESS, POOL):
                try:
                    self._take(self._log.read(message))
                except (InvalidRecord, InvalidSubject):
                    assert message.kind is not POOL  # what a user got wrong

    def _take(self, version: Version) -> None:
        name, record = version.key[-1], version.record
        if version.kind is FUNCTION:
            self._functions[name] = record if isinstance(record, Function) else None
        elif version.kind is ACCESS:
            self._access[name] = record if isinstance(record, FunctionAccess) else None
        else:
            self._check_pool(version.key, record if isinstance(record, Pool) else None)
            return
        function = self._functions.get(name)
        if function is not None:
            self._allowed.add((str(pool_of(NS, name, function, self._access.get(name))), row(name, function)))

    def _check_pool(self, key: Key, pool: Pool | None) -> None:
        for each in orjson.loads(pool.run.env["STEER_MEMBERS"]) if pool is not None and pool.members else []:
            if (str(PoolKey(*key)), orjson.dumps(each).decode()) not in self._allowed:
                raise Violation("pools", f"{each} was never to be in {key}")
