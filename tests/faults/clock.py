"""A wall clock that is wrong, and jumps, for one process: no rights are needed, only a C compiler.

A small library that is loaded before the C library adds an offset to what it says of the wall clock; the offset lies in
a file, so that it can be changed while the process runs. Clocks that count seconds are left alone, as on a real machine
whose date is set.
"""

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset_seconds;

__attribute__((constructor)) static void look(void) {
  int file = open(getenv("WRONG_CLOCK"), O_RDONLY);
  if (file >= 0) offset_seconds = mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, at);
  if (!result && clock == CLOCK_REALTIME && offset_seconds) at->tv_sec += *offset_seconds;
  return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  struct timespec now;
  int result = clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return result;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
"""


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


class WrongClock:
    """`environment` for the process; `jump` sets how many seconds its wall clock is ahead."""

    def __init__(self, folder: Path, seconds: int) -> None:
        self._file = folder / "clock"
        self._file.write_bytes(struct.pack("q", seconds))
        source, self._library = folder / "clock.c", folder / "clock.so"
        source.write_text(SOURCE)
        found = compiler()
        assert found is not None, "there is no C compiler"
        subprocess.run([found, "-shared", "-fPIC", "-O1", "-o", self._library, source, "-ldl"], check=True)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "WRONG_CLOCK": str(self._file)}

    def jump(self, seconds: int) -> None:
        with self._file.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            memory[:8] = struct.pack("q", seconds)
