"""What a function may reach, as one hash; and the key of its pool, of which that hash is a part.

The access document is a JSON object of nine lists, in this order and without spaces: `kv, blob, catalogs, sql, links`,
each sorted by alias, `secrets, config` as declared, `owned, grants` sorted. Its bytes are those of Go's `encoding/json`,
which escapes for HTML, so the hash agrees with that of any other implementation. Nothing else counts: neither the code
of a function nor how it scales, nor how long a link may take.

Pure. Texts are compared by their UTF-8 bytes, which for Python's strings is the order of code points.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from json.encoder import encode_basestring as _quoted
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from shared.model.function import Function, FunctionAccess
from shared.subjects import Key

SOLO_PREFIX = "_"
SECTIONS = ("kv", "blob", "catalogs", "sql", "links", "secrets", "config")
"""What the function itself says, in the order of the document; `owned` and `grants` follow."""

REMEMBERED = 16_384
"""So many hashes are remembered, and as many keys: who shares a pool says the same."""

Said = tuple[tuple[Any, ...], ...]
"""What a function says in each section: the texts of its bindings, in the order of `_BINDINGS`, and names."""

_BINDINGS: Mapping[str, str] = {
    "kv": '{{"alias":{},"store":{},"table":{}}}',
    "blob": '{{"alias":{},"bucket":{},"prefix":{}}}',
    "catalogs": '{{"alias":{},"catalog":{}}}',
    "sql": '{{"alias":{},"database":{},"schema":{}}}',
    "links": '{{"alias":{},"target":{}}}',
}
"""A binding in the document: its texts in this order."""

_kv, _blob, _links = (
    attrgetter("alias", "store", "table"),
    attrgetter("alias", "bucket", "prefix"),
    attrgetter("alias", "target"),
)
_catalogs, _sql = attrgetter("alias", "catalog"), attrgetter("alias", "database", "schema_name")
_sections, _alias = itemgetter(*SECTIONS), itemgetter(0)

_EMPTY = {name: f'"{name}":[]' for name in SECTIONS}
_ESCAPES = (("&", "\\u0026"), ("<", "\\u003c"), (">", "\\u003e"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029"))


class PoolKey(NamedTuple):
    """One pool: functions that agree in all four share a worker. It is also the key of the `Pool` record.

    `str` gives `runtime/worker/access`, the form in which records name a pool within its namespace.
    """

    namespace: str
    runtime: str
    worker: str
    access: str

    def __str__(self) -> str:
        return f"{self.runtime}/{self.worker}/{self.access}"

    @property
    def solo(self) -> bool:
        """The pool of one function that names no worker."""
        return self.worker.startswith(SOLO_PREFIX)


def parse_pool(namespace: str, text: str) -> PoolKey | None:
    """The inverse of `str`: exactly three parts, none of them empty; None for anything else."""
    parts = text.split("/")
    return PoolKey(namespace, *parts) if len(parts) == 3 and all(parts) else None


def pool_named(function: Key, text: str) -> PoolKey:
    """The pool that a placement of this function names; placements are our own, so it is well-formed."""
    return PoolKey(function[0], *text.split("/"))


def key_of(namespace: str, function: Function, access: FunctionAccess | None = None) -> PoolKey | None:
    """The pool that a function declares; None where it names no worker, and so runs alone."""
    worker = function.pooling.worker
    if not worker:
        return None
    return PoolKey(namespace, function.runtime, worker, hash_of(function, access))


def pool_of(namespace: str, name: str, function: Function, access: FunctionAccess | None = None) -> PoolKey:
    """The pool of a function: the one that it declares, else a pool of its own."""
    worker = function.pooling.worker or SOLO_PREFIX + name
    return PoolKey(namespace, function.runtime, worker, hash_of(function, access))


def hash_of(function: Function, access: FunctionAccess | None) -> str:
    """`access_hash` with what an access record says; one that repeats itself says no more than one that does not."""
    if access is None:
        return _hash(said_by(function), (), ())
    return _hash(said_by(function), once(access.owned), once(access.grants))


def once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(texts)))


def access_hash(
    function: Function, owned: Iterable[str], grants: Iterable[str], sections: tuple[str, ...] = SECTIONS
) -> str:
    """The first 16 hex digits of the SHA-256 of the access document. Texts that are not Unicode raise `ValueError`.

    `sections` are those of the document before `owned`; an older form has no `sql`.
    """
    return sha256(access_document(function, owned, grants, sections)).hexdigest()[:16]


def access_document(
    function: Function, owned: Iterable[str], grants: Iterable[str], sections: tuple[str, ...] = SECTIONS
) -> bytes:
    said = [(name, items) for name, items in zip(SECTIONS, said_by(function), strict=True) if name in sections]
    return _document(said, tuple(owned), tuple(grants))


def said_by(function: Function) -> Said:
    kv, blob, catalogs, sql, links, secrets, config = _sections(function.__dict__)
    return (
        kv and tuple(map(_kv, kv)),
        blob and tuple(map(_blob, blob)),
        catalogs and tuple(map(_catalogs, catalogs)),
        sql and tuple(map(_sql, sql)),
        links and tuple(map(_links, links)),
        secrets,
        config,
    )


@lru_cache(maxsize=REMEMBERED)
def pool_and_said(
    namespace: str, runtime: str, worker: str, said: Said, owned: tuple[str, ...], grants: tuple[str, ...]
) -> tuple[PoolKey, Said]:
    """The key of a pool, and what its functions say: one object of each for all of them. `once` gives the other two."""
    return PoolKey(namespace, runtime, worker, _hash(said, owned, grants)), said


@lru_cache(maxsize=REMEMBERED)
def _hash(said: Said, owned: tuple[str, ...], grants: tuple[str, ...]) -> str:
    return sha256(_document(zip(SECTIONS, said, strict=True), owned, grants)).hexdigest()[:16]


def _document(said: Iterable[tuple[str, Sequence[Any]]], owned: Sequence[str], grants: Sequence[str]) -> bytes:
    parts = [_section(name, items) if items else _EMPTY[name] for name, items in said]
    parts.append(f'"owned":[{_strings(sorted(owned))}]')
    parts.append(f'"grants":[{_strings(sorted(grants))}]')
    text = "{" + ",".join(parts) + "}"
    for character, escape in _ESCAPES:  # these stand in strings only, so the text may be searched as a whole
        if character in text:
            text = text.replace(character, escape)
    return text.encode()


def _section(name: str, items: Sequence[Any]) -> str:
    form = _BINDINGS.get(name)
    if form is None:
        return f'"{name}":[{_strings(items)}]'
    ordered = sorted(items, key=_alias) if len(items) > 1 else items
    return f'"{name}":[' + ",".join([form.format(*map(_quoted, texts)) for texts in ordered]) + "]"


def _strings(texts: Sequence[str]) -> str:
    return ",".join([_quoted(text) for text in texts])
