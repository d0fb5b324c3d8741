"""The scheduler decides which node runs which replica.

Reads environments, releases, deploy requests and node controls of users; nodes, instances and telemetry of agents; what
the routes have taken in; and its own records.
Owns assignments, deployments, active releases, scales, node statuses and the fleet.
Promises: a decision is atomic, fenced and explained; reservations never exceed a node's capacity; a replica is started
before the one it replaces is drained, and none is stopped while a live proxy still routes to it, deadlines aside; every
deployment ends by its deadline; what cannot be placed says why, and is placed as soon as it can be.

Where the parts are: `placement` chooses nodes, `workload` says what is placed, `replicas` what is known of them,
`replace` changes what runs, `deployments` the phases, `environments` one pass over one environment, `nodes` liveness
and drains, `state` the fold, `decide` the pass.

Of the seed: `Place` is `placement.place`; `Scheduler` is `environments` with `replace`; `Orchestrator` is `deployments`,
its `SetDrainWindow` the environment's `drain_window_seconds`; `RouteBuilder` is the service `routes`; `LiveView` is the
telemetry that `state.observe` takes.
"""
