"""Caddy's JSON (2.9 or newer).

Caddy puts values in place of `{…}` in most strings, so the braces of free text are escaped. It matches paths without
regard to case, so prefixes are matched by an expression. A standard Caddy has neither a rate limit nor L4 routes.
With `slots` the addresses of endpoints are not in it, and the mark in it is its own digest: other endpoints, same bytes.
"""

import base64
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import orjson

from services.routes.render.options import Options
from services.routes.render.plan import Closed, Part, Port, Site
from services.routes.render.renderer import Form, Slots, Texts, Whole
from services.routes.render.slots import group, slots
from shared.model.route import Endpoint

TRY_SECONDS = 5
TRY_EVERY_MILLIS = 50
FAIL_SECONDS = 2
DIAL_SECONDS = 1
STICKY_COOKIE = "steer_sticky"
_NEVER = base64.b64encode(b"$2a$04$" + b"." * 53).decode()
"""A bcrypt hash of nothing known."""

Json = dict[str, Any]


def _site(site: Site, options: Options) -> Texts:
    """As it is on the listener for HTTP, and on that for HTTPS where there is one."""
    texts = [_text(_route(site, options, https=False))]
    if options.https:
        texts.append(_text(_route(site, options, https=True)))
    return tuple(texts)


def _port(port: Port, options: Options) -> Texts:
    return ()


def _configuration(whole: Whole, options: Options) -> str:
    """The configuration as JSON, keys sorted, a host on a line. The answer to its `/id/<mark>` tells what is in force."""
    servers = {"http": _server(whole.sites, options, options.http, options.mark)}
    if options.https:
        servers["https"] = _server(whole.sites, options, options.https, https=True)
    if options.internal:
        servers["internal"] = _server(whole.internal, options, options.internal)
    http: Json = {"servers": servers, "metrics": {"per_host": True}}
    http["https_port"] = _number(options.https, 443)
    http["http_port"] = _number(options.http, 80)
    apps: Json = {"http": http}
    if options.https and options.certificates:
        apps["tls"] = {"certificates": {"load_folders": [options.certificates]}}
    return _text({"admin": {"listen": options.admin, "config": {"persist": False}}, "apps": apps}) + "\n"


def _server(
    served: Sequence[tuple[Site, Texts]], options: Options, address: str, mark: str = "", *, https: bool = False
) -> Json:
    routes: list[str] = []
    for hostname, sites in groupby(served, key=lambda each: each[0].hostname):
        inside = ",".join(texts[https] for _, texts in sites)
        host = _text({"host": [hostname]})
        routes.append(f'{{"handle":[{{"handler":"subroute","routes":[{inside}]}}],"match":[{host}]}}')
    nothing: Json = {"handle": [{"handler": "static_response", "status_code": 404, "body": "no route\n"}]}
    if mark:
        nothing["@id"] = mark
    routes.append(_text(nothing))
    automatic = {"disable_redirects": True} if https else {"disable": True}
    written = ",\n".join(routes)
    return {"listen": [address], "automatic_https": automatic, "routes": orjson.Fragment(f"[\n{written}\n]")}


def _text(value: Json) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _names(part: Part) -> Iterator[tuple[str, str]]:
    """It counts by host."""
    return ((site.hostname, site.environment) for site in _served(part))


def _slots(part: Part, options: Options) -> Slots:
    if not options.slots:
        return {}
    return {group(site): _addresses(site.endpoints) for site in _served(part) if _slotted(site, options)}


def _served(part: Part) -> list[Site]:
    return [site for site in (*part.sites, *part.internal) if site.to == "endpoints"]


def _left_out(part: Part) -> Iterator[str]:
    for site in part.sites:
        if site.rate_limit:
            yield f"{site.hostname}{site.prefix}: rate_limit needs a module of Caddy"
    for port in part.ports:
        yield f"port {port.number}: L4 routes need a module of Caddy"


def _route(site: Site, options: Options, *, https: bool) -> Json:
    route: Json = {"handle": _handlers(site, options, https)}
    if site.prefix:
        route["match"] = [{"path_regexp": {"pattern": f"^{re.escape(site.path)}(/|$)"}}]
    return route


def _handlers(site: Site, options: Options, https: bool) -> list[Json]:
    if site.middleware.redirect_https and options.https and not https:
        port = _number(options.https, 443)
        host = "{http.request.host}" + ("" if port == 443 else f":{port}")
        location = {"Location": [f"https://{host}{{http.request.uri}}"]}
        return [{"handler": "static_response", "status_code": 308, "headers": location}]
    return [*_middleware(site), _target(site, options)]


def _middleware(site: Site) -> list[Json]:
    """In the order: addresses, user, size, compression."""
    said = site.middleware
    found: list[Json] = []
    if site.allowlist is not None:
        found.append(_only_from(site.allowlist))
    if site.auth is not None:
        found.append(_authentication(site))
    if said.max_body_bytes:
        found.append({"handler": "request_body", "max_size": said.max_body_bytes})
    if said.compress:
        found.append({"handler": "encode", "encodings": {"gzip": {}}, "prefer": ["gzip"]})
    return found


def _only_from(networks: Sequence[str]) -> Json:
    refusal: Json = {"handle": [{"handler": "static_response", "status_code": 403, "body": "not from here\n"}]}
    if networks:
        refusal["match"] = [{"not": [{"remote_ip": {"ranges": list(networks)}}]}]
    return {"handler": "subroute", "routes": [refusal]}


def _authentication(site: Site) -> Json:
    if isinstance(site.auth, Closed) or site.auth is None:
        account = {"username": "nobody", "password": _NEVER}
    else:
        digest = base64.b64encode(site.auth.password_hash.encode()).decode()
        account = {"username": literal(site.auth.username), "password": digest}
    basic = {"hash": {"algorithm": "bcrypt"}, "accounts": [account]}
    return {"handler": "authentication", "providers": {"http_basic": basic}}


def _target(site: Site, options: Options) -> Json:
    if site.to == "activator":
        return _proxy(options.activators, {"policy": "round_robin"}, flush=True)
    if site.to == "endpoints":
        sticky = {"policy": "cookie", "name": STICKY_COOKIE, "fallback": {"policy": "least_conn"}}
        policy = sticky if site.middleware.sticky_sessions else {"policy": "random_choose", "choose": 2}
        return _proxy(_dialled(site, options), policy)
    return {"handler": "static_response", "status_code": 503, "body": "no endpoint\n"}


def _proxy(addresses: Sequence[str], policy: Json, *, flush: bool = False) -> Json:
    proxy: Json = {
        "handler": "reverse_proxy",
        "upstreams": [{"dial": address} for address in addresses],
        "load_balancing": {
            "selection_policy": policy if len(addresses) > 1 or policy["policy"] == "cookie" else {"policy": "first"},
            "try_duration": f"{TRY_SECONDS}s",
            "try_interval": f"{TRY_EVERY_MILLIS}ms",
        },
        "health_checks": {"passive": {"fail_duration": f"{FAIL_SECONDS}s"}},
        "transport": {"protocol": "http", "dial_timeout": f"{DIAL_SECONDS}s", "versions": ["1.1"]},
    }
    if flush:
        proxy["flush_interval"] = -1
    return proxy


def _dialled(site: Site, options: Options) -> tuple[str, ...]:
    if not _slotted(site, options):
        return _addresses(site.endpoints)
    where = f"{options.slots}/{group(site)}"
    return tuple(f"{{file.{where}/{slot}}}" for slot in range(slots(len(site.endpoints))))


def _slotted(site: Site, options: Options) -> bool:
    return bool(options.slots) and not site.middleware.sticky_sessions


def _addresses(endpoints: Sequence[Endpoint]) -> tuple[str, ...]:
    return tuple(endpoint.address for endpoint in endpoints)


def _number(address: str, otherwise: int) -> int:
    tail = address.rpartition(":")[2]
    return int(tail) if tail.isdigit() else otherwise


def literal(text: str) -> str:
    """Text in which Caddy puts nothing in the place of braces."""
    return text.replace("{", "\\{").replace("}", "\\}")


FORM = Form(_site, _port, _configuration, _names, _left_out, _slots)
