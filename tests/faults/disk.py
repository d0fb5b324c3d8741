"""A file system of its own for a server's store, so that it can be really full: a small one in memory.

Mounting takes rights that not everybody has. Where they are lacking the store lies on the ordinary disk, and `small` says
so: nobody fills that.
"""

import os
import subprocess
from pathlib import Path

SIZE_MB = 512
"""More than a server here stores at most (`MAX_FILE_STORE_MB`): that limit is another fault."""
FIRST_BYTES = 1 << 20


class Disk:
    """`mount` before the server starts, `unmount` when it has ended; in between `fill` and `free`."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._filler = store / "filler"
        self.small = False

    def mount(self) -> None:
        """Once; where it cannot be, `small` stays false."""
        if self.small:
            return
        self._store.mkdir(parents=True, exist_ok=True)
        command = ("mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "steer-faults", str(self._store))
        try:
            self.small = subprocess.run(command, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            self.small = False

    def fill(self) -> None:
        """To the last byte."""
        assert self.small, "this disk is not ours alone"
        size = FIRST_BYTES
        with self._filler.open("wb", buffering=0) as filler:
            while size:
                try:
                    filler.write(bytes(size))
                except OSError:
                    size //= 2
        assert not os.statvfs(self._store).f_bavail, "there is room left"

    def free(self) -> None:
        self._filler.unlink()

    def unmount(self) -> None:
        if self.small:
            subprocess.run(("umount", "--lazy", str(self._store)), capture_output=True, check=False)
            self.small = False
