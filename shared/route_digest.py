"""The digest of a set of route records: one number that a follower can keep as cheaply as the service that writes them.

    digest = sum modulo 2^256 of SHA-256(subject, 0x00, payload)    over all route records

A sum has no order and every term can be taken out again, so one change costs one hash, whatever the number of records.
It finds errors (a record missed, applied twice, cut off), it is no seal against forgery. The payload is the body as it
was published, not as it was understood: a follower of another version, or in another language, agrees.
"""

from hashlib import sha256

_MODULUS = 1 << 256


def term(subject: str, payload: bytes) -> int:
    """What one record adds to the digest."""
    return int.from_bytes(sha256(subject.encode() + b"\x00" + payload).digest(), "big")


def moved(digest: int, removed: int, added: int) -> int:
    """The digest after one record's term has been exchanged; 0 stands for no record."""
    return (digest - removed + added) % _MODULUS


def text(digest: int) -> str:
    """As a manifest carries it: 64 hex digits."""
    return f"{digest:064x}"
