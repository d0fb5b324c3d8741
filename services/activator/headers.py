"""What is forwarded of the head of a message (RFC 9110, section 7.6.1): everything but what speaks of one connection."""

from collections.abc import Iterable

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "proxy-authenticate",
    }
)

Pairs = list[tuple[str, str]]


def end_to_end(headers: Iterable[tuple[str, str]]) -> Pairs:
    """The headers without those of the connection, and without those that `Connection` names."""
    pairs = list(headers)
    named = {name.strip().lower() for key, value in pairs if key.lower() == "connection" for name in value.split(",")}
    dropped = HOP_BY_HOP | named
    return [(key, value) for key, value in pairs if key.lower() not in dropped]


def to_endpoint(headers: Iterable[tuple[str, str]], peer: str, scheme: str, host: str) -> Pairs:
    """A request's headers, with the addresses that it came through. What the proxy before us has said stays."""
    pairs = end_to_end(headers)
    before = [value for key, value in pairs if key.lower() == "x-forwarded-for"]
    known = {key.lower() for key, _ in pairs}
    pairs = [(key, value) for key, value in pairs if key.lower() != "x-forwarded-for"]
    pairs.append(("X-Forwarded-For", ", ".join([*before, peer])))
    if "x-forwarded-proto" not in known:
        pairs.append(("X-Forwarded-Proto", scheme))
    if "x-forwarded-host" not in known:
        pairs.append(("X-Forwarded-Host", host))
    return pairs
