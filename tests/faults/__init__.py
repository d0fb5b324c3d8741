"""Real faults on real processes: too long for the suite, short enough for every release.

`python -m tests.faults` starts one server and then a cluster of three, each with two processes of every service on it,
lets users, agents, build workers and proxies work without a pause, and meanwhile kills, pauses, fills, floods and cuts
off what runs. What was acknowledged is written down as it happens, and looked up at the end; the whole log is decided
again and checked. What was seen becomes `docs/reliability.md`.

Services and servers are processes of their own. What surrounds them (users, agents, build workers, proxies) plays its
part in this process, so that it knows what it was promised.
"""
