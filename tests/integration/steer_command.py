"""Runs the `steer` command inside the test's process, against the test's server."""

import asyncio
import contextlib
import io
import json
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.cli.__main__ import main

_alone = threading.Lock()


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Steer:
    """`await steer("get", "node")`: in a thread, since the command runs an event loop of its own.

    Without a URL, the data directory tells it. Commands run one after the other: the streams and the variables are the
    process's.
    """

    def __init__(self, url: str, data: Path) -> None:
        self.variables = {"STEER_DATA": str(data)} | ({"STEER_NATS_URL": url} if url else {})

    async def __call__(self, *arguments: str, stdin: str = "") -> Result:
        return await asyncio.to_thread(self.run, *arguments, stdin=stdin)

    def run(self, *arguments: str, stdin: str = "") -> Result:
        out, err = io.StringIO(), io.StringIO()
        code = 0
        with (
            _alone,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            _variables(self.variables),
            _stdin(stdin),
        ):
            try:
                main(arguments)
            except SystemExit as end:
                code = int(end.code or 0)
        return Result(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _variables(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _stdin(text: str) -> Iterator[None]:
    before, sys.stdin = sys.stdin, io.StringIO(text)
    try:
        yield
    finally:
        sys.stdin = before
