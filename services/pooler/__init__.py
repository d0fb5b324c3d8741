"""The pooler decides which functions share a worker process: by namespace, runtime, worker id and access.

Reads functions, access records, pooling policies and runtimes of users; the assignments of pools and what their hosts
say of their members; and its own records.
Owns placements, one of each function, and pools, each a workload that the scheduler places.
Promises: functions that reach different things never share a worker; a pool never has more members than its limit; who
is not admitted has the reason, and is admitted when there is room, without anybody writing its record again; a function
that goes to another pool runs in the old one until it is ready in the new one, or for a minute; and however many
functions one edit moves, at most as many pools of a namespace change at a time as one pool takes members.

Where the parts are: `access` is the key of a pool, `assign` the policy, `state` the fold into what `world` holds,
`candidates` what is known of the functions, `workers` what is known of the hosts, `pools` what one pool should be,
`hosting` what its worker runs, `view` whose turn it is, `functions` where one function is, `decide` the pass.

Of the seed: `AccessHashOf` is `access.access_hash`, `KeyOf` is `access.key_of`, `ParsePool` and `PoolKey` are
`parse_pool` and `PoolKey` there; `Assignment` is `assign.PoolAssignment`, `Assigner` the protocol there, and
`NewAssigner` gives what `ByName` is. A function without a worker id runs alone in the seed; here that is a pool of one,
whose worker is `_<function>`.
"""
