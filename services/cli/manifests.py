"""Manifests: documents whose `kind` is a record class, `name` the subject's tokens joined by `/`, the rest the body.

`check` validates all of them with the models that the services use, and gives every mistake with its place: nothing is
published before there is none.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from pydantic import BaseModel

from services.cli import documents, names
from services.cli.exits import Refused
from shared import codec, subjects
from shared.errors import InvalidRecord
from shared.subjects import Key, Kind

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"


@dataclass(frozen=True, slots=True)
class Source:
    """A text and what it is called in messages."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something wrong in one document: where it is, the path of the field, and the reason."""

    source: str
    document: int
    path: str
    reason: str

    def __str__(self) -> str:
        place = f"{self.source}, document {self.document}"
        return f"{place}: {self.path}: {self.reason}" if self.path else f"{place}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One valid document."""

    source: str
    document: int
    kind: Kind
    key: Key
    record: BaseModel

    @property
    def title(self) -> str:
        return f"{codec.MODELS[self.kind].__name__} {names.joined(self.key)}"


def check(sources: Iterable[Source]) -> tuple[list[Manifest], list[Mistake]]:
    """The valid documents, in the order of the kinds (a release before its deploy request), and every mistake."""
    manifests: list[Manifest] = []
    mistakes: list[Mistake] = []
    for source in sources:
        for document in documents.read(source.text, json_only=source.name.endswith(".json")):
            found = _check_one(source.name, document)
            if isinstance(found, Manifest):
                manifests.append(found)
            else:
                mistakes += found
    mistakes += _twins(manifests)
    order = {kind: position for position, kind in enumerate(subjects.KINDS)}
    return sorted(manifests, key=lambda manifest: order[manifest.kind]), mistakes


def _check_one(source: str, document: documents.Document) -> Manifest | list[Mistake]:
    def mistake(path: str, reason: str) -> Mistake:
        return Mistake(source, document.number, path, reason)

    if document.error:
        return [mistake("", document.error)]
    if document.value is None:  # nothing between two separators
        return []
    if not isinstance(document.value, dict):
        return [mistake("", "not a mapping; a document has kind, name and the fields of the record")]
    body = dict(document.value)
    kind, key, found = _head(body.pop("kind", None), body.pop("name", None))
    mistakes = [mistake(path, reason) for path, reason in found]
    if kind is None:
        return mistakes
    try:
        record = codec.validate(codec.MODELS[kind], "", _bytes(body))
    except InvalidRecord as error:
        mistakes += [mistake(problem.path, problem.reason) for problem in error.problems]
    else:
        if not mistakes:
            return Manifest(source, document.number, kind, key, record)
    return mistakes


def _head(kind_name: Any, name: Any) -> tuple[Kind | None, Key, list[tuple[str, str]]]:
    """The kind and the key that `kind` and `name` stand for, and what is wrong with them."""
    kind = names.user_kind_of_class(kind_name) if isinstance(kind_name, str) else None
    if kind is None:
        known = ", ".join(names.USER_CLASSES)
        reason = "missing" if kind_name is None else f"{kind_name!r} is none of yours to write"
        return None, (), [("kind", f"{reason}; it is one of {known}")]
    if not isinstance(name, str):
        reason = "missing" if name is None else f"{name!r} is no text"
        return kind, (), [("name", f"{reason}; it is {names.form(kind)}")]
    try:
        return kind, names.key_of(kind, name), []
    except Refused as refused:
        return kind, (), [("name", str(refused))]


def _bytes(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _twins(manifests: list[Manifest]) -> list[Mistake]:
    first: dict[str, Manifest] = {}
    mistakes = []
    for manifest in manifests:
        other = first.setdefault(manifest.kind.subject(*manifest.key), manifest)
        if other is not manifest:
            place = f"{other.source}, document {other.document}"
            mistakes.append(Mistake(manifest.source, manifest.document, "name", f"the same as in {place}"))
    return mistakes


def sources_of(paths: Iterable[str], stdin: TextIO) -> list[Source]:
    """The texts of files, of the manifests in directories, and of `-`. Raises `Refused` for what cannot be read."""
    sources: list[Source] = []
    for name in paths:
        if name == STDIN:
            sources.append(Source("stdin", stdin.read()))
            continue
        path = Path(name)
        files = _files_in(path) if path.is_dir() else [path]
        sources += [Source(str(file), _text(file)) for file in files]
    return sources


def _files_in(directory: Path) -> list[Path]:
    files = sorted(path for path in directory.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    if not files:
        raise Refused(f"{directory}: no manifest in it ({', '.join(SUFFIXES)})")
    return files


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Refused(f"{file}: not UTF-8") from None
    except OSError as error:
        raise Refused(f"{file}: {error.strerror}") from None
