"""What a function may reach, as one hash; and the key of its pool, of which that hash is a part.

The access document is a JSON object of nine lists, in this order and without spaces: `kv, blob, catalogs, sql, links`,
each sorted by alias, `secrets, config` as declared, `owned, grants` sorted. Its bytes are those of Go's `encoding/json`,
which escapes for HTML, so the hash agrees with that of any other implementation. Nothing else counts: neither the code
of a function nor how it scales, nor how long a link may take.

Pure. Texts are compared by their UTF-8 bytes, which for Python's strings is the order of code points.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from json.encoder import encode_basestring as _quoted
from operator import attrgetter
from typing import Any, NamedTuple

from shared.model.function import Function, FunctionAccess

SOLO_PREFIX = "_"
SECTIONS = ("kv", "blob", "catalogs", "sql", "links", "secrets", "config")
"""What the function itself says, in the order of the document; `owned` and `grants` follow."""

Said = tuple[Sequence[Any], ...]
"""What a function says in each section."""

_alias = attrgetter("alias")

_BINDINGS: Mapping[str, Callable[[Any], str]] = {
    "kv": lambda it: f'{{"alias":{_quoted(it.alias)},"store":{_quoted(it.store)},"table":{_quoted(it.table)}}}',
    "blob": lambda it: f'{{"alias":{_quoted(it.alias)},"bucket":{_quoted(it.bucket)},"prefix":{_quoted(it.prefix)}}}',
    "catalogs": lambda it: f'{{"alias":{_quoted(it.alias)},"catalog":{_quoted(it.catalog)}}}',
    "sql": lambda it: (
        f'{{"alias":{_quoted(it.alias)},"database":{_quoted(it.database)},"schema":{_quoted(it.schema_name)}}}'
    ),
    "links": lambda it: f'{{"alias":{_quoted(it.alias)},"target":{_quoted(it.target)}}}',
}
"""The members of a binding in the document, in order."""

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


def key_of(namespace: str, function: Function, access: FunctionAccess | None = None) -> PoolKey | None:
    """The pool that a function declares; None where it names no worker, and so runs alone."""
    worker = function.pooling.worker
    if not worker:
        return None
    return PoolKey(namespace, function.runtime, worker, hash_of(function, access))


def pool_of(namespace: str, name: str, function: Function, access: FunctionAccess | None = None) -> PoolKey:
    """The pool of a function: the one that it declares, else a pool of its own."""
    declared = key_of(namespace, function, access)
    return declared or PoolKey(namespace, function.runtime, SOLO_PREFIX + name, hash_of(function, access))


def hash_of(function: Function, access: FunctionAccess | None) -> str:
    """`access_hash` with what an access record says; one that repeats itself says no more than one that does not.

    Those who share a pool say the same, so the hash of what is said is remembered.
    """
    if access is None:
        return _hash(_reader(SECTIONS)(function), (), ())
    return _hash(_reader(SECTIONS)(function), tuple(sorted(set(access.owned))), tuple(sorted(set(access.grants))))


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
    return _document(sections, _reader(sections)(function), tuple(owned), tuple(grants))


@lru_cache(maxsize=65_536)
def _hash(said: Said, owned: tuple[str, ...], grants: tuple[str, ...]) -> str:
    return sha256(_document(SECTIONS, said, owned, grants)).hexdigest()[:16]


def _document(sections: tuple[str, ...], said: Said, owned: tuple[str, ...], grants: tuple[str, ...]) -> bytes:
    parts = [_section(name, items) if items else _EMPTY[name] for name, items in zip(sections, said, strict=True)]
    parts.append(f'"owned":[{_strings(sorted(owned))}]')
    parts.append(f'"grants":[{_strings(sorted(grants))}]')
    text = "{" + ",".join(parts) + "}"
    for character, escape in _ESCAPES:  # these stand in strings only, so the text may be searched as a whole
        if character in text:
            text = text.replace(character, escape)
    return text.encode()


@cache
def _reader(sections: tuple[str, ...]) -> Callable[[Function], Said]:
    return attrgetter(*sections)


def _section(name: str, items: Sequence[Any]) -> str:
    write = _BINDINGS.get(name)
    if write is None:
        return f'"{name}":[{_strings(items)}]'
    ordered = sorted(items, key=_alias) if len(items) > 1 else items
    return f'"{name}":[' + ",".join([write(item) for item in ordered]) + "]"


def _strings(texts: Sequence[str]) -> str:
    return ",".join([_quoted(text) for text in texts])
