"""A pool has at most as many members as its limit, and who is placed in a pool is a member of it."""

from collections.abc import Iterator

from shared.invariants.logged import Breach
from shared.invariants.moment import Moment, subject_of
from shared.model.pool import Pool, PoolPlacement
from shared.subjects import PLACEMENT, POOL


def pools_have_their_members(moment: Moment) -> Iterator[Breach]:
    for version in moment.versions:
        match version.record:
            case Pool() as pool if version.kind is POOL and len(pool.members) > pool.limit:
                detail = f"has {len(pool.members)} members, more than {pool.limit}"
                yield Breach("pools", version.sequence, subject_of(version), detail)
            case PoolPlacement(rejected=False, queued_for="") as placement if (
                version.kind is PLACEMENT and placement.pool
            ):
                named = moment.view.get(POOL, (version.key[0], *placement.pool.split("/")), Pool)
                if named is None or version.key[1] not in named.members:
                    detail = f"is placed in {placement.pool}, which does not have it"
                    yield Breach("pools", version.sequence, subject_of(version), detail)
            case _:
                pass
