"""The text of HAProxy's configuration (2.6 or newer).

Every word that comes from a record is written in hexadecimal escapes but for letters, digits and a few signs, so it is
one word whatever it contains. Hosts are found in one lookup; only routes with a prefix are compared one by one.

A server whose connections fail is checked, and left out while it is down. Each is there a second time as a backup that
is not checked: where all seem to be down, be it that the machine is too busy for its checks, all are tried.

The rate limit counts the requests of a client address in a window of `burst / requests_per_second` seconds, those that
it refuses included. The limit of a body is that of the length it announces: a body without a length is not limited.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from math import ceil

from services.routes.render.options import Options
from services.routes.render.plan import Closed, Part, Port, Site
from services.routes.render.renderer import Form, Texts, Whole
from shared.model.environment import RateLimit

STICKY_COOKIE = "steer_sticky"
HOSTS_A_LINE = 32
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:*")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_ENVIRONMENT = re.compile(r"[a-z0-9/-]{1,200}")
_COMPRESSED = "text/html text/plain text/css text/javascript application/javascript application/json image/svg+xml"

HEAD = """\
# Written by Steersman; changes to this file are lost.
global
    hard-stop-after 1h
{global_lines}
defaults
    mode http
    timeout connect 1s
    timeout client 75s
    timeout server 75s
    timeout http-request 10s
    timeout http-keep-alive 60s
    timeout queue 10s
    timeout tunnel 1h
    balance roundrobin
    retries 3
    option redispatch 1
    option allbackups
    retry-on conn-failure empty-response
    default-server check inter 30s fastinter 200ms downinter 1s fall 1 rise 1
    default-server observe layer4 error-limit 1 on-error fastinter
"""


def _site(site: Site, options: Options) -> Texts:
    return ("\n".join([*_userlist(site), *_backend(site, options)]),)


def _port(port: Port, options: Options) -> Texts:
    return ("\n".join(_listen(port, options)),)


def _configuration(whole: Whole, options: Options) -> str:
    sites, internal = [site for site, _ in whole.sites], [site for site, _ in whole.internal]
    lines = [_head(options), *_frontend(sites, options), *_internal(internal, options)]
    lines += [text for _, texts in (*whole.sites, *whole.internal, *whole.ports) for text in texts]
    return "\n".join(lines) + "\n"


def _names(part: Part) -> Iterator[tuple[str, str]]:
    """It counts by backend."""
    for site in (*part.sites, *part.internal):
        if site.to == "endpoints":
            yield site.name, site.environment
    for port in part.ports:
        yield _listener(port), port.environment


def word(text: str) -> str:
    """Text as one word that HAProxy reads as it is."""
    return "".join(chr(byte) if byte in _PLAIN else f"\\x{byte:02x}" for byte in text.encode())


def _left_out(part: Part) -> Iterator[str]:
    for site in part.sites:
        if site.middleware.max_body_bytes:
            yield f"{site.hostname}{site.prefix}: max_body_bytes holds for bodies that announce their length"


def _head(options: Options) -> str:
    lines = (
        [f"    stats socket {word(options.socket)} mode 600 level admin expose-fd listeners"] if options.socket else []
    )
    lines += [f"    description {word(options.mark)}"] if options.mark else []
    return HEAD.format(global_lines="".join(f"{line}\n" for line in lines))


def _frontend(sites: Sequence[Site], options: Options) -> Iterator[str]:
    yield "frontend http"
    yield f"    bind {_bind(options.http)}"
    if options.https:
        yield f"    bind {_bind(options.https)} ssl crt {word(options.certificates)} alpn h2,http/1.1"
    yield from _choice(sites, "r")


def _internal(sites: Sequence[Site], options: Options) -> Iterator[str]:
    if options.internal:
        yield "frontend internal"
        yield f"    bind {_bind(options.internal)}"
        yield from _choice(sites, "i")


def _choice(sites: Sequence[Site], letter: str) -> Iterator[str]:
    """`letter` begins the names of these sites."""
    yield from _facts()
    yield from _choices(sites, letter)
    yield "    http-request return status 404 content-type text/plain string no\\x20route if !{ var(txn.route) -m found }"
    yield "    use_backend %[var(txn.route)]"
    yield ""


def _facts() -> Iterator[str]:
    """The host and the path to match by. A path that climbs is refused: what lies behind may see it otherwise."""
    yield "    http-request del-header x-forwarded-for"
    yield "    option forwardfor"
    yield "    http-request set-header X-Forwarded-Proto https if { ssl_fc }"
    yield "    http-request set-header X-Forwarded-Proto http if !{ ssl_fc }"
    yield "    http-request set-header X-Forwarded-Host %[req.hdr(host)]"
    yield "    http-request disable-l7-retry if !{ method GET HEAD OPTIONS }"
    yield "    http-request set-var(txn.host) req.hdr(host),field(1,:),lower,rtrim(.)"
    yield "    http-request set-var(txn.wild) var(txn.host),regsub(^[^.]*,*)"
    yield "    http-request set-var(txn.path) path,url_dec,regsub(//+,/,g)"
    yield "    http-request deny deny_status 400 if { var(txn.path) -m reg (^|/)\\.\\.?(/|$) }"


def _choices(chosen: Sequence[Site], letter: str) -> Iterator[str]:
    """First the routes of wildcards, then those of whole hosts, each without a prefix before those with one, short ones
    first: the last that matches has the say."""
    for wildcard, variable in ((True, "txn.wild"), (False, "txn.host")):
        sites = [site for site in chosen if site.hostname.startswith("*.") is wildcard]
        if variable == "txn.wild" and not sites:
            continue
        yield from _whole([site for site in sites if not site.prefix], variable, letter)
        for site in sorted((site for site in sites if site.prefix), key=lambda site: (len(site.prefix), site.prefix)):
            prefix = word(site.path)
            for match in (f"-m str -- {prefix}", f"-m beg -- {prefix}/"):
                yield (
                    f"    http-request set-var(txn.route) str({site.name}) "
                    f"if {{ var({variable}) -m str -- {word(site.hostname)} }} {{ var(txn.path) {match} }}"
                )


def _whole(sites: Sequence[Site], variable: str, letter: str) -> Iterator[str]:
    """Hosts without a prefix are told apart by their digest, which is the name of their backend."""
    acl = "known_" + variable.rpartition(".")[2]
    for start in range(0, len(sites), HOSTS_A_LINE):
        names = " ".join(word(site.hostname) for site in sites[start : start + HOSTS_A_LINE])
        yield f"    acl {acl} var({variable}) -m str -- {names}"
    if sites:
        name = f"var({variable}),sha2(256),hex,lower,bytes(0,16)"
        yield f"    http-request set-var(txn.code) {name} if {acl}"
        yield f"    http-request set-var(txn.route) str({letter}),concat(,txn.code,) if {acl}"


def _userlist(site: Site) -> Iterator[str]:
    if site.auth is None:
        return
    yield f"userlist {site.name}"
    if not isinstance(site.auth, Closed):
        yield f"    user {word(site.auth.username)} password {word(site.auth.password_hash)}"
    yield ""


def _backend(site: Site, options: Options) -> Iterator[str]:
    yield f"backend {site.name}"
    about = f"    # {site.hostname}{site.prefix}"
    yield f"{about}: {site.environment}" if _ENVIRONMENT.fullmatch(site.environment) else about
    yield from _middleware(site, options)
    if site.to == "nobody":
        yield "    http-request return status 503 content-type text/plain string no\\x20endpoint"
    elif site.to == "activator":
        yield from _servers((f"a{number}", address, "") for number, address in enumerate(options.activators))
    else:
        sticky = site.middleware.sticky_sessions
        if sticky:
            yield f"    cookie {STICKY_COOKIE} insert indirect nocache httponly"
        named = [(_server_name(index, each.assignment), each) for index, each in enumerate(site.endpoints)]
        yield from _servers(
            (name, each.address, f" cookie {sticky_value(each.assignment)}" if sticky else "") for name, each in named
        )
    yield ""


def _middleware(site: Site, options: Options) -> Iterator[str]:
    """In the order: redirect, addresses, rate, user, size, compression."""
    said = site.middleware
    if said.redirect_https and options.https:
        port = options.https.rpartition(":")[2]
        host = "%[var(txn.host)]" + ("" if port == "443" else f":{port}")
        yield f"    http-request redirect prefix https://{host} code 308 if !{{ ssl_fc }}"
    if site.allowlist is not None:
        yield from (f"    acl allowed src {network}" for network in site.allowlist)
        yield "    http-request deny deny_status 403" + (" if !allowed" if site.allowlist else "")
    if site.rate_limit is not None:
        yield from _rate_limit(site.rate_limit)
    if site.auth is not None:
        yield f"    http-request auth realm steersman if !{{ http_auth({site.name}) }}"
    if said.max_body_bytes:
        yield f"    http-request deny deny_status 413 if {{ req.hdr_val(content-length) gt {said.max_body_bytes} }}"
    if said.compress:
        yield "    compression algo gzip"
        yield f"    compression type {_COMPRESSED}"


def _rate_limit(limit: RateLimit) -> Iterator[str]:
    burst = limit.burst or ceil(limit.requests_per_second)
    day = limit.requests_per_second * 86_400 <= burst  # a rate so small that its quotient is no number
    window = 86_400_000 if day else max(ceil(1000 * burst / limit.requests_per_second), 10)
    yield f"    stick-table type ipv6 size 32k expire 2m store http_req_rate({window}ms)"
    yield "    http-request track-sc0 src"
    yield (
        "    http-request return status 429 content-type text/plain string too\\x20many\\x20requests hdr Retry-After 1 "
        f"if {{ sc_http_req_rate(0) gt {burst} }}"
    )


def _listen(port: Port, options: Options) -> Iterator[str]:
    yield f"listen {_listener(port)}"
    yield f"    bind {_bind(f'{options.l4_host}:{port.number}')}"
    yield "    mode tcp"
    if not port.endpoints:
        yield "    tcp-request connection reject"
    yield from _servers(
        (_server_name(index, each.assignment), each.address, "") for index, each in enumerate(port.endpoints)
    )
    yield ""


def _listener(port: Port) -> str:
    return f"l4_{port.number}"


def _servers(servers: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    backups = []
    for name, address, rest in servers:
        yield f"    server {name} {address}{rest}"
        backups.append(f"    server b_{name} {address} backup no-check{rest}")
    yield from backups


def _server_name(index: int, assignment: str) -> str:
    return f"s{index}_{assignment}" if _NAME.fullmatch(assignment) else f"s{index}"


def _bind(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"{word(host) if host else '*'}:{port}"


def sticky_value(assignment: str) -> str:
    """The value of the cookie that leads back to a replica: base 36 of FNV-1a of its assignment."""
    digest = 0x811C9DC5
    for byte in assignment.encode():
        digest = ((digest ^ byte) * 0x01000193) & 0xFFFFFFFF
    text = ""
    while digest:
        digest, rest = divmod(digest, 36)
        text = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + text
    return text or "0"


FORM = Form(_site, _port, _configuration, _names, _left_out)
