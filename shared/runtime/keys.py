"""The kind and the key of a subject, as `subjects.parse` gives them, at a third of its cost: a token that was well-formed
once is so again.

A node, an app or an assignment is in the keys of many records, so each token is held once.
"""

from collections.abc import Mapping
from functools import cache
from sys import intern

from shared import subjects
from shared.subjects import Key, Kind

MOST_TOKENS = 16_384
"""So many of a form are remembered; then they are forgotten. What names the same comes close together in the log."""

_BEHIND_THE_FIRST = subjects.FLEET.prefix.index(".") + 1
"""All subjects begin with one and the same token."""

Tokens = dict[str, str]

_forms: dict[str, Tokens] = {}


def parse(subject: str) -> tuple[Kind, Key]:
    """Raises `InvalidSubject` where the subject is foreign or a token has not its form."""
    at = subject.find(".", _BEHIND_THE_FIRST)
    known = _fixed().get(subject[:at]) if at > 0 else None
    if known is not None:
        kind, forms = known
        tokens = subject[at + 1 :].split(".")
        if len(tokens) == len(forms):
            try:
                return kind, tuple([form[token] for form, token in zip(forms, tokens)])  # noqa: B905 - equally many
            except KeyError:
                pass
    kind, parsed = subjects.parse(subject)
    key = tuple(map(intern, parsed))
    if known is not None:
        _remember(known[1], key)
    return kind, key


def _remember(forms: tuple[Tokens, ...], key: Key) -> None:
    for form, token in zip(forms, key, strict=True):
        if len(form) >= MOST_TOKENS:
            form.clear()
        form[token] = token


@cache
def _fixed() -> Mapping[str, tuple[Kind, tuple[Tokens, ...]]]:
    """The kinds with a prefix of two tokens and a fixed number of others, each with its form."""
    return {
        kind.prefix: (kind, tuple([_forms.setdefault(token.partition(":")[2], {}) for token in kind.tokens]))
        for kind in subjects.KINDS
        if kind.tokens and not kind.open_ended and kind.prefix.count(".") == 1
    }
