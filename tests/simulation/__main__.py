"""`python -m tests.simulation --seeds N [--seed K]`: N seeds from 0 on, or one of them alone."""

import argparse
import sys
import time
import traceback

from .world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one alone")
    parser.add_argument("--until-one-fails", action="store_true", help="stop at the first seed that does not hold")
    options = parser.parse_args()
    first, count = (options.seed, 1) if options.seed is not None else (options.first, options.seeds)
    failed = []
    began = time.monotonic()
    for seed in range(first, first + count):
        try:
            World(seed).run()
        except Exception as error:
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)  # noqa: T201
            if options.seed is not None:
                traceback.print_exc()
            print(f"  again: python -m tests.simulation --seed {seed}", flush=True)  # noqa: T201
            if options.until_one_fails:
                return 1
    seconds = time.monotonic() - began
    print(f"{count - len(failed)} of {count} seeds hold, {seconds / count:.2f} s each")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
