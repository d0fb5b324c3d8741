"""The activator: the way to what is scaled to zero, and the gate before what has a limit. `python -m services.activator`.

Follows  the routes, as every proxy does.
Writes   `steer.activation.<name>.<env>`, and its acknowledgements and demand on `steer.live.proxy.<name>`.

Proxies send it the requests for hosts with `via_activator`; it stands behind them and takes their X-Forwarded headers
for true. It does not redirect, authenticate or limit rates: they have.

Promises
* A request for a cold host, or for one whose replicas are full, is held: at most 100 of an environment, for 60 s, with
  bodies that announce at most 10 MiB. It is answered 503 where there is no room (with Retry-After) or it is too large,
  504 when its time is over, 502 where it can go nowhere, 404 without a route.
* When requests are held for a cold environment, one activation is published, and one more each 15 s that it stays cold.
* No replica gets more requests at a time than `max_concurrency`, from this activator.
* Who waited longest goes first. Bodies are streamed, never stored.
* Connection upgrades (WebSocket) are not forwarded.

    gate.py      who goes where, who waits, who is turned away (pure)
    choice.py    the less loaded of two (pure)
    demand.py    counts → what is reported (pure)
    led.py       which environments the hosts lead to (pure)
    headers.py   what is forwarded of a message's head (pure)
    forward.py   one request to one endpoint and back
    waking.py    activations
    server.py    HTTP in front of the gate
    run.py       one activator from its start to its stop
"""
