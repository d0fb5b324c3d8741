"""The builder decides which build gets which leased worker, and how many workers there should be.

Reads builds and pools of users, the releases that name builds, the records, reports and heartbeats of workers; and its
own records. Owns build statuses, orders, leases, lease requests and the scale of each pool.
Promises: one attempt of a build at a time, whose token alone counts; a worker has at most one lease, which ends when
nothing is heard of it; turns are fair by owner; a cancel works in every state; every build ends by its deadlines; a
restart takes nobody's worker away; what waits says for what.

Where the parts are: `workers` the ten states, `scale` how many, `leases` tokens and ends, `line` whose turn it is,
`dispatch` who gets which worker, `orders` what it must run, `builds` the phases of one build, `pools` one look at a pool,
`retention` what is forgotten, `commands` and `queries` the endpoints, `state` the fold, `decide` the pass. Beside the
service: `client` for those who want a worker, `worker` the reference worker, `scaler` what runs workers on this machine.

Of the seed of workers: `AutoscalingPool` is the service, `NewPool` its `BuildPool` record; `Get`, `Release` and `Close`
are `client.Pool`; `ErrNoUnleasedPods` is the answer to a request that does not wait. `ScaleArbiter.EvaluatePod` is
`workers.observe_worker`, `LeasablePods` `workers.leasable`, `DetermineReplicas` `scale.determine_replicas`;
`BuilderState` is `workers.WorkerState`, `PodObservation` with `MarkLeased` and `String` `workers.Observation`.
`PodRequest` and the `Queue` (`NewRequestQueue`, `RequestQueue`, `Enqueue`, `Dequeue`, `Len`, `Remove`) are
`LeaseRequest` records in a `line.Line`; `PodRequestResult` is the reply of `lease`. Of the `PoolOption`s `MaxIdleTime`
is `max_idle_seconds`, `EndpointWatchTimeoutSeconds` `ready_timeout_seconds`, `Logger` the log of the process;
`SyncWaitTime` has no counterpart, since nothing is polled.

Of the seed of the scheduler: `BuildDispatcher` is `dispatch` with `builds`, its `BuildLog` the stream of log lines and
`SetBuilderTimeout` the pool's `lease_ttl_seconds`; `BuildDispatcherConfig` is `config.BuilderConfig`, filled from
`STEER_SOURCE_URL_BASE`, `STEER_REGISTRY_ADDRESS` and `STEER_LOCAL_LOAD`; `BuildDialer`, `GRPCBuildDialer` and
`BuildStream` are order, report and log records.
"""
