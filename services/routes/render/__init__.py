"""A route table as the configuration of a proxy: pure functions, the same bytes for the same table.

`caddy` gives Caddy's JSON (2.9 or newer), `haproxy` the text of HAProxy (2.6 or newer). Both start from a plan: each
record without what has not its form. Records come from the log, so nothing in them is trusted: a hostname, a prefix or an
address that is none is left out and said (`left_out`), and free text is escaped for the syntax it goes into.

What both do: hosts before wildcards, longest prefix first, by whole segments, on the decoded path; another endpoint when
a connection fails; 404 without a route, 503 without an endpoint; hosts that scale to zero or have a limit of concurrent
requests go to an activator, which holds the requests. What one of them cannot do is said in `left_out`, too.

Internal services and functions are on a listener of their own, if the options name one, by names below `internal`
(`plan.py`). Whoever follows the routes can also reach their endpoints directly.

    plan.py      what each record is to be served as, without what has not its form
    renderer.py  one configuration after the other: of a record that stays nothing is made again
    caddy.py, haproxy.py  what is written for a site, for a port, and around them
    slots.py     the files from which Caddy reads endpoints
"""

from collections.abc import Callable, Mapping
from functools import partial

from services.routes.render import caddy, haproxy
from services.routes.render.options import Options
from services.routes.render.plan import Routes
from services.routes.render.renderer import Form, Rendered, Renderer, render

FORMS: Mapping[str, Form] = {"caddy": caddy.FORM, "haproxy": haproxy.FORM}
FORMATS: Mapping[str, Callable[[Routes, Options], Rendered]] = {
    name: partial(render, form) for name, form in FORMS.items()
}

__all__ = ["FORMATS", "FORMS", "Options", "Rendered", "Renderer", "Routes"]
