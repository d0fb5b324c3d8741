"""The reference doer: it runs replicas on one node and says what became of them. `python -m services.agent`.

Follows  `steer.assignment.<node>.*`, `steer.snapshot_order.<node>.>`, `steer.snapshot_prune.<node>.>` and `steer.fleet`,
         one named consumer each, and reads its own `Node`, `Instance` and `SnapshotReport` records. Nothing else.
Writes   `steer.node.<node>`, `steer.instance.<node>.<assignment>`, `steer.snapshot_report.<node>.>`, and its heartbeat
         `steer.live.node.<node>`.

Promises
* Every assignment is answered, also a `stop` for something that never ran here (`stopped`). Nothing is reported twice.
* A replica is started at most once. Its exit is `failed`, whatever its code; what happens next the scheduler decides.
* What a `stop` or a tombstone names is stopped. What merely has no assignment is stopped only after a complete load
  of a log that knows this node; an empty log stops nothing.
* While the bus is away everything keeps running and is watched; the newest report of each instance is delivered later.
* Replicas outlive the agent and are adopted by the next one, unless it is told to stop them on its exit.
* A replica with volumes is started only with a `volume_epoch` that is not over, and that is on the disk before.
* A snapshot is whole or not there. One that was under way when the agent ended is made again, within its deadline.
* A node whose record an operator deletes is out of service. Its replicas go with the tombstones of its assignments;
  an agent that finds the deletion after a reconnect stops its heartbeat, stops nothing by itself and registers again
  only when it is started again.

    run.py        `run_agent`: one agent from its start to its stop
    agent.py      follow → reconcile → act: the loop; reads.py what it follows, assignments.py what came of that
    reconcile.py  what is wanted and what is there → what to do (pure)
    replica.py    the life of one replica: start, watch, probe, stop
    volumes.py    directories that outlive replicas, and the fence before them
    snapshots.py  orders → snapshots, prunes → deletions; snapshot_command.py makes one
    driver.py     what a driver is; exec_driver.py runs programs of this machine
    processes.py  process groups by pid; host_ports.py free ports; confine.py names that must not lead out of a directory
    health.py     probes → healthy or not (pure); probe.py asks
    members.py    what a pool host says of its members; pool_host.py and pool_member.py are the reference host
    journal.py    what outlives the agent, on disk
    reports.py    instances and snapshots to the log, on change only, until stored
    heartbeat.py  what the node and its replicas use; node.py what the node is; metrics.py how its replicas stand
    clock.py      the server's time and this host's, neither of which follows a jump of the wall clock
"""
