"""`python -m tests.simulation --seeds N [--seed K]`: N seeds from 0 on, side by side; or one of them alone."""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from .world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--until-one-fails", action="store_true", help="stop at the first seed that does not hold")
    options = parser.parse_args()
    if options.seed is not None:
        text = _run(options.seed, trace=True)
        print(text or f"seed {options.seed} holds")  # noqa: T201
        return 1 if text else 0
    failed = 0
    began = time.monotonic()
    for text in _texts(range(options.first, options.first + options.seeds), options.jobs):
        if text:
            failed += 1
            print(text, flush=True)  # noqa: T201
            if options.until_one_fails:
                return 1
    seconds = time.monotonic() - began
    print(f"{options.seeds - failed} of {options.seeds} seeds hold, {seconds / options.seeds:.2f} s each")  # noqa: T201
    return 1 if failed else 0


def _texts(seeds: range, jobs: int) -> Iterator[str]:
    """What each seed comes to."""
    if jobs == 1:
        yield from map(_run, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        try:
            yield from pool.map(_run, seeds)
        finally:
            pool.shutdown(cancel_futures=True)


def _run(seed: int, *, trace: bool = False) -> str:
    """Why a seed does not hold; empty where it does."""
    try:
        World(seed).run()
    except Exception as error:
        if trace:
            traceback.print_exc()
        return f"seed {seed}: {type(error).__name__}: {error}\n  again: python -m tests.simulation --seed {seed}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
