"""What people type: a kind (`Environment`, `environments`, `node-status`) and a name (`shop/web/production`)."""

from collections.abc import Callable

from services.cli.exits import Refused
from shared import codec, subjects
from shared.errors import InvalidSubject
from shared.subjects import Key, Kind


def kind_called(text: str) -> Kind:
    """The kind of a word: its name or its record class, one or many, in any case. Raises `Refused`."""
    wanted = _folded(text)
    for kind in subjects.KINDS:
        if wanted in _spellings(kind):
            return kind
    known = ", ".join(kind.name for kind in subjects.KINDS)
    raise Refused(f"{text}: no such kind; there are {known}")


def user_kind_of_class(text: str) -> Kind | None:
    """The user-owned kind whose record class has this exact name, as manifests write it."""
    return USER_CLASSES.get(text)


def key_of(kind: Kind, name: str) -> Key:
    """The key of a name, whose tokens are joined by `/`. Raises `Refused`."""
    key = tuple(name.split("/")) if name else ()
    if len(key) < len(kind.tokens) or (len(key) > len(kind.tokens) and not kind.open_ended):
        raise Refused(f"{name or kind.name}: a name is {form(kind)}")
    return _checked(kind, key, name, kind.check)


def _checked(kind: Kind, key: Key, name: str, check: Callable[[Key], None]) -> Key:
    try:
        check(key)
    except InvalidSubject as error:
        raise Refused(f"{name}: {error.reason}; a name is {form(kind)}") from None
    return key


def prefix_of(kind: Kind, name: str) -> Key:
    """The key, or the first tokens of one: `shop/web` stands for all environments of that app. Raises `Refused`."""
    name = name.strip("/")
    key = tuple(name.split("/")) if name else ()
    if len(key) >= len(kind.tokens) and not kind.open_ended:
        return key_of(kind, name)
    return _checked(kind, key, name, kind.check_tokens)


def thing_key(name: str) -> Key:
    """The tokens of a name of whatever services tell something about, or the first of them. Raises `Refused`."""
    name = name.strip("/")
    key = tuple(name.split("/")) if name else ()
    for token in key:
        try:
            subjects.NOTICE.check_tokens(("a", "a", token))
        except InvalidSubject:
            raise Refused(f"{name}: {token!r} is not letters, digits, - and _") from None
    return key


def environment_key(name: str) -> Key:
    """The key of an environment. Raises `Refused`."""
    return key_of(subjects.ENVIRONMENT, name)


def joined(key: Key) -> str:
    return "/".join(key)


def form(kind: Kind) -> str:
    """For people: `<project>/<app>/<environment>`."""
    return (
        kind.template.removeprefix(kind.prefix).lstrip(".").replace(">.<", ">/<") or f"empty: there is one {kind.name}"
    )


def _folded(text: str) -> str:
    return text.lower().replace("-", "").replace("_", "")


def _spellings(kind: Kind) -> set[str]:
    words = {_folded(kind.name), _folded(codec.MODELS[kind].__name__)}
    return words | {f"{word}s" for word in words}


USER_CLASSES = {codec.MODELS[kind].__name__: kind for kind in subjects.KINDS if kind.owner is subjects.Owner.USERS}
"""What manifests may hold: record class → kind."""
