"""A bridge between the routes and a proxy that knows nothing of them: follow, render, apply, acknowledge.

Follows  the routes. Writes its acknowledgements and the demand on `steer.live.proxy.<name>`, and nothing else.

A version is acknowledged when the proxy has it, not when it was told of it. One that the proxy refuses is reported as
the error of the sample, the version before goes on being served, and it is tried again. A proxy that has lost what it
had, by a restart, gets it again. `python -m services.routes.bridge --proxy caddy|haproxy`.

    bridge.py      the loop
    caddy.py       Caddy, by its admin API
    slots.py       the files from which Caddy reads endpoints
    haproxy.py     HAProxy, by its file, a reload of its workers, and its statistics socket
    statistics.py  counters of a proxy → demand (pure)
"""
