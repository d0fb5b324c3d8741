"""What an agent follows, and nothing else: four filters, each with a consumer of its own. Its rights are these."""

from shared import subjects


def assignments(node: str) -> str:
    return subjects.ASSIGNMENT.subject(node, "*")


def snapshots(node: str) -> tuple[str, str]:
    return subjects.SNAPSHOT_ORDER.subject(node, ">"), subjects.SNAPSHOT_PRUNE.subject(node, ">")


def fleet() -> str:
    return subjects.FLEET.subject()


def all_of(node: str) -> tuple[str, ...]:
    return assignments(node), *snapshots(node), fleet()
