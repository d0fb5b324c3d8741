"""Routes: what proxies follow, as deltas and whole.

Reads    environment (whether it exists), release (ports and policy), domain, active, assignment, instance, node,
         node_status, pool, placement; its own records; its own notices.
Keeps    domain: validates it, quarantines what cannot be read, restores the last good version.
Owns     route_host, route_l4, route_internal, route_function, route_manifest, routed_environment,
         routed_pool; and `steer.snapshot.routes`.

Promises
* A change rebuilds the records that it touches and nothing else.
* A version is complete when its manifest is there, and its digest then agrees with the records.
* What waits for a promotion or a drain to be taken in always gets its `Routed`.
* Policy comes from the release that serves; changing the active release is the atomic switch of traffic.
* A function leads to the pool workers in which it is ready, and to no other.
* Who has a host, a path or a public port keeps it; who comes later gets a notice.

Where the parts of the reference's RouteBuilder went
* the rebuild of everything on every change and tick → dirty keys (`world`), a look at each (`decide`)
* endpoints → `serving`; hosts of domains and implicit hosts → `hosts`; L4 and internal services → `ports`
* RouteSnapshot, the store's counter as its version → a manifest and a digest (`versions`), the whole (`snapshot`)
* the wait of 200 ms → leading edge, at most one version per 50 ms in a burst (`versions`)
* subscriber channels that hold one → the log itself, and `shared.runtime.follow`
"""
