"""One configuration after the other: of a record that stays nothing is made again.

A record becomes a piece: its sites and ports, each with its text. The whole is put together of the texts only when
somebody asks for it, and a proxy that has it already does not (`Rendered.body`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pydantic import BaseModel

from services.routes.render.options import Options
from services.routes.render.plan import Part, Port, Routes, Site, code, part, records
from shared import route_digest

Texts = tuple[str, ...]
Slots = Mapping[str, tuple[str, ...]]


class Whole(NamedTuple):
    """Everything in the order of matching, with its texts: hosts before wildcards, names before what is below them."""

    sites: Sequence[tuple[Site, Texts]] = ()
    internal: Sequence[tuple[Site, Texts]] = ()
    ports: Sequence[tuple[Port, Texts]] = ()


class Form(NamedTuple):
    """How a proxy is configured. `names` are those under which it counts its load, with the environments; `slots` None:
    it has none."""

    site: Callable[[Site, Options], Texts]
    port: Callable[[Port, Options], Texts]
    whole: Callable[[Whole, Options], str]
    names: Callable[[Part], Iterable[tuple[str, str]]]
    left_out: Callable[[Part], Iterable[str]]
    slots: Callable[[Part, Options], Slots] | None = None


@dataclass(frozen=True, slots=True)
class Rendered:
    """A configuration. `left_out` says what of the table it does not do; `environments` whose load a name is.

    `mark` is the one inside it. `slots` are the addresses of each group of slots, where the options ask for them.
    """

    write: Callable[[], str]
    left_out: tuple[str, ...] = ()
    environments: Mapping[str, str] = field(default_factory=dict)
    mark: str = ""
    slots: Slots = field(default_factory=dict)

    @property
    def body(self) -> str:
        """Written when it is asked for."""
        return self.write()


class _Piece(NamedTuple):
    """What one record has become; `term` is what it adds to the digest of all."""

    part: Part
    texts: Mapping[str, Texts]
    names: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]
    slots: Slots
    term: int


_NOTHING = _Piece(Part(), {}, (), (), {}, 0)


class Renderer:
    """`change` for each version, `rendered` for its configuration."""

    def __init__(self, form: Form, options: Options) -> None:
        self._form = form
        self._options = options
        self._pieces: dict[str, _Piece] = {}
        self._slots: dict[str, tuple[str, ...]] = {}
        self._digest = 0
        self._described = True
        self._left_out: tuple[str, ...] = ()
        self._environments: dict[str, str] = {}

    def change(self, records: Iterable[tuple[str, BaseModel | None]]) -> None:
        """These records say something else now, or nothing any more (None)."""
        for name, record in records:
            before = self._pieces.pop(name, _NOTHING)
            after = self._piece(record) if record is not None else _NOTHING
            if record is not None:
                self._pieces[name] = after
            for group in before.slots:
                self._slots.pop(group, None)
            self._slots.update(after.slots)
            self._digest = route_digest.moved(self._digest, before.term, after.term)
            same = (before.names, before.left_out) == (after.names, after.left_out)
            self._described = self._described and same

    def rendered(self, mark: str = "") -> Rendered:
        """The configuration as it is now; it stays that when others follow. `mark` is for the one that has none."""
        if not self._described:
            self._describe()
        form, options, pieces = self._form, self._options, self._pieces.copy()
        if form.slots is not None and options.slots:
            without = form.whole(Whole(), replace(options, mark=""))
            mark = f"steer-{code(without, route_digest.text(self._digest))}"
        return Rendered(
            write=lambda: form.whole(_in_order(_sorted(pieces)), replace(options, mark=mark)),
            left_out=self._left_out,
            environments=self._environments,
            mark=mark,
            slots=self._slots.copy(),
        )

    def _piece(self, record: BaseModel) -> _Piece:
        form, options, made = self._form, self._options, part(record, self._options)
        texts = {site.name: form.site(site, options) for site in (*made.sites, *made.internal)}
        texts |= {_name(port): form.port(port, options) for port in made.ports}
        return _Piece(
            part=made,
            texts=texts,
            names=tuple(form.names(made)),
            left_out=(*made.left_out, *form.left_out(made)),
            slots=form.slots(made, options) if form.slots is not None else {},
            term=sum(route_digest.term(name, "\0".join(text).encode()) for name, text in texts.items()),
        )

    def _describe(self) -> None:
        """A name that is that of several environments, or of none, tells nobody's load."""
        pieces = _sorted(self._pieces)
        self._left_out = tuple(text for piece in pieces for text in piece.left_out)
        owners: dict[str, str] = {}
        for name, environment in (pair for piece in pieces for pair in piece.names):
            owners[name] = environment if owners.get(name, environment) == environment else ""
        self._environments = {name: environment for name, environment in owners.items() if environment}
        self._described = True


def render(form: Form, routes: Routes, options: Options) -> Rendered:
    """The configuration of one table."""
    renderer = Renderer(form, options)
    renderer.change(records(routes))
    return renderer.rendered(options.mark)


def _sorted(pieces: Mapping[str, _Piece]) -> list[_Piece]:
    return [pieces[name] for name in sorted(pieces)]


def _in_order(pieces: Sequence[_Piece]) -> Whole:
    """What two records claim, one of them gets."""
    sites = {site.name: (site, piece.texts[site.name]) for piece in pieces for site in piece.part.sites}
    internal = {site.name: (site, piece.texts[site.name]) for piece in pieces for site in piece.part.internal}
    ports = {port.number: (port, piece.texts[_name(port)]) for piece in pieces for port in piece.part.ports}
    return Whole(
        sorted(sites.values(), key=_of_host),
        sorted(internal.values(), key=lambda each: (each[0].hostname, each[0].prefix)),
        [each for _, each in sorted(ports.items())],
    )


def _of_host(each: tuple[Site, Texts]) -> tuple[bool, str, int, str]:
    site = each[0]
    return site.hostname.startswith("*."), site.hostname, -len(site.prefix), site.prefix


def _name(port: Port) -> str:
    return f"port {port.number}"
