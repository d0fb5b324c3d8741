"""The pool host as a process: members load, are called, fail and restart, each for itself."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

GREET = """
import os
import threading
from . import words

AT_IMPORT = os.environ["TONE"]


def handle(event):
    return {"say": f"{words.HELLO} {event['name']}", "tone": os.getenv("TONE"), "at_import": AT_IMPORT,
            "function": os.environ["STEER_FUNCTION"], "others": "SECRET" in os.environ}


async def later(event):
    return [event]


def nothing(event):
    return None


def strange(event):
    return {1, 2}


def number(event):
    return float("nan")


def broken(event):
    raise ValueError("no such name")


def ends(event):
    raise SystemExit(3)


def slow(event):
    threading.Event().wait(30)
"""


class Running:
    """A pool host; `artifacts` is where it runs."""

    def __init__(self, artifacts: Path, rows: list[dict[str, Any]], **environment: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        variables = {"PORT": str(self.port), "STEER_MEMBERS": json.dumps(rows), "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "services.agent.pool_host"],
            cwd=artifacts,
            env={"PATH": os.environ["PATH"]} | variables | environment,
        )
        self.until(self.listens)

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()

    def call(self, name: str, value: Any = None) -> tuple[int, Any]:
        return self.ask("POST", f"/function/{name}", json.dumps(value).encode())

    def states(self) -> dict[str, str]:
        return {name: each["state"] for name, each in self.ask("GET", "/health/members")[1]["members"].items()}

    def listens(self) -> bool:
        assert self.process.poll() is None, "the host has ended"
        try:
            return bool(self.ask("GET", "/healthz"))
        except OSError:
            return False

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "it does not come to that"
            time.sleep(0.02)

    def loaded(self) -> None:
        self.until(lambda: self.ask("GET", "/healthz")[0] == 200)


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    greet = tmp_path / "greet"
    greet.mkdir()
    (greet / "main.py").write_text(GREET)
    (greet / "words.py").write_text("HELLO = 'hello'\n")
    other = tmp_path / "other"
    other.mkdir()
    (other / "main.py").write_text("from . import words\n\ndef handle(event):\n    return words.HELLO\n")
    (other / "words.py").write_text("HELLO = 'good day'\n")
    (tmp_path / "crash.py").write_text("raise RuntimeError('at import')\n")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(1)\n")
    hangs = "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.01)\n"
    (tmp_path / "hangs.py").write_text(hangs + "def handle(event):\n    return 'at last'\n")
    return tmp_path


def row(name: str, handler: str = "handle", artifact: str = "greet", **more: Any) -> dict[str, Any]:
    return {"name": name, "handler": handler, "artifact": artifact, **more}


MEMBERS = [
    row("greet", env={"TONE": "kind"}),
    row("loud", "main.handle", env={"TONE": "loud", "SECRET": "s"}),
    row("other", artifact="other"),
    row("crash", artifact="crash.py"),
    row("leaves", artifact="leaves.py"),
    row("missing", artifact="nowhere"),
    row("typo", "main.handel", env={"TONE": "x"}),
    *(row(name, f"main.{name}", env={"TONE": "x"}) for name in ("later", "nothing", "strange", "number", "broken")),
    row("ends", "main.ends", env={"TONE": "x"}),
    row("slow", "main.slow", env={"TONE": "x"}, timeout_seconds=0.2),
]


@pytest.fixture
def host(artifacts: Path) -> Iterator[Running]:
    running = Running(artifacts, MEMBERS)
    running.loaded()
    yield running
    running.process.kill()
    running.process.wait()


def test_each_member_loads_for_itself_and_says_what_became_of_it(host: Running) -> None:
    states = host.states()
    failed = {name for name, state in states.items() if state == "failed"}
    assert failed == {"crash", "leaves", "missing", "typo"}
    assert set(states.values()) == {"ready", "failed"}
    members = host.ask("GET", "/health/members")[1]["members"]
    assert members["crash"]["error"] == "RuntimeError: at import"
    assert "nowhere" in members["missing"]["error"] and "handel" in members["typo"]["error"]
    assert host.call("crash") == (503, {"error": "crash is failed: RuntimeError: at import"})


def test_a_member_sees_its_own_variables_at_import_and_in_calls(host: Running) -> None:
    answer = {"say": "hello Ada", "function": "greet", "tone": "kind", "at_import": "kind", "others": False}
    assert host.call("greet", {"name": "Ada"}) == (200, answer)
    loud = {"function": "loud", "tone": "loud", "at_import": "loud", "others": True}
    assert host.call("loud", {"name": "Ada"}) == (200, answer | loud)


def test_two_artifacts_may_have_modules_of_one_name(host: Running) -> None:
    assert host.call("other") == (200, "good day")


def test_what_a_function_gives_is_the_answer(host: Running) -> None:
    assert host.call("later", 7) == (200, [7])
    assert host.call("nothing") == (204, None)
    assert host.ask("POST", "/function/later") == (200, [None])


def test_what_goes_wrong_in_a_call_is_told(host: Running) -> None:
    assert host.call("broken") == (500, {"error": "ValueError: no such name"})
    assert host.call("greet", {}) == (500, {"error": "KeyError: 'name'"})
    assert host.call("strange")[0] == host.call("number")[0] == 500
    assert host.ask("POST", "/function/later", b"{")[0] == 400
    assert host.call("slow") == (504, {"error": "slow has not answered within 0.2 s"})


def test_what_is_not_there_is_not_found(host: Running) -> None:
    assert host.call("nobody")[0] == host.ask("GET", "/function/greet")[0] == host.ask("POST", "/")[0] == 404


def test_a_member_that_ends_is_started_anew_and_nobody_else_is(host: Running) -> None:
    assert host.call("ends") == (503, {"error": "ends ended with SystemExit: 3 and is started anew"})
    assert host.states()["ends"] in ("restarting", "ready")
    assert host.call("later", 1)[0] == 200
    host.until(lambda: host.states()["ends"] == "ready")
    assert host.call("ends")[0] == 503


def test_a_member_that_hangs_at_import_holds_up_only_itself(artifacts: Path) -> None:
    host = Running(artifacts, [row("hangs", artifact="hangs.py"), row("other", artifact="other")])
    try:
        host.until(lambda: host.states() == {"hangs": "loading", "other": "ready"})
        assert host.ask("GET", "/healthz") == (503, {"loading": ["hangs"]})
        assert host.call("other") == (200, "good day")
        assert host.call("hangs")[0] == 503
        (artifacts / "go").touch()
        host.loaded()
        assert host.call("hangs") == (200, "at last")
    finally:
        host.process.kill()
        host.process.wait()


def test_a_member_that_loads_for_too_long_has_failed(artifacts: Path) -> None:
    host = Running(artifacts, [row("hangs", artifact="hangs.py")], STEER_LOAD_TIMEOUT_SECONDS="0.3")
    try:
        host.loaded()
        assert host.ask("GET", "/health/members")[1]["members"]["hangs"] == {
            "state": "failed",
            "error": "load timed out: not loaded within 0.3 s",
        }
    finally:
        host.process.kill()
        host.process.wait()


def test_it_ends_after_the_calls_that_are_under_way(artifacts: Path) -> None:
    text = "import pathlib, time\n\ndef handle(event):\n    pathlib.Path('begun').touch()\n"
    text += "    while not pathlib.Path('go').exists():\n        time.sleep(0.01)\n    return 'done'\n"
    (artifacts / "waits.py").write_text(text)
    host = Running(artifacts, [row("waits", artifact="waits.py")])
    try:
        host.loaded()
        connection = http.client.HTTPConnection("127.0.0.1", host.port, timeout=60)
        connection.request("POST", "/function/waits")
        host.until((artifacts / "begun").exists)
        host.process.send_signal(signal.SIGTERM)
        (artifacts / "go").touch()
        assert connection.getresponse().read() == b'"done"\n'
        connection.close()
        assert host.process.wait(timeout=60) == 0
    finally:
        host.process.kill()
        host.process.wait()


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"STEER_MEMBERS": "[}"}, "STEER_MEMBERS"),
        ({"STEER_MEMBERS": '[{"name":"a"}]'}, "STEER_MEMBERS"),
        ({"STEER_MEMBERS": "[]", "STEER_CALL_TIMEOUT_SECONDS": "-1"}, "STEER_CALL_TIMEOUT_SECONDS"),
        ({"STEER_MEMBERS": "[]", "PORT": "http"}, "PORT"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(variables: dict[str, str], reason: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "services.agent.pool_host"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2 and reason in ended.stderr
