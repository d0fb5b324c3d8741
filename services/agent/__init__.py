"""The reference doer: it runs replicas on one node and says what became of them. `python -m services.agent`.

Follows  `steer.assignment.<node>.*` and `steer.fleet`, one named consumer each, and reads its own `Node` and
         `Instance` records. Nothing else.
Writes   `steer.node.<node>`, `steer.instance.<node>.<assignment>`, and its heartbeat `steer.live.node.<node>`.

Promises
* Every assignment is answered, also a `stop` for something that never ran here (`stopped`). Nothing is reported twice.
* A replica is started at most once. Its exit is `failed`, whatever its code; what happens next the scheduler decides.
* What a `stop` or a tombstone names is stopped. What merely has no assignment is stopped only after a complete load
  of a log that knows this node; an empty log stops nothing.
* While the bus is away everything keeps running and is watched; the newest report of each instance is delivered later.
* Replicas outlive the agent and are adopted by the next one, unless it is told to stop them on its exit.
* A node whose record an operator deletes is out of service. Its replicas go with the tombstones of its assignments;
  an agent that finds the deletion after a reconnect stops its heartbeat, stops nothing by itself and registers again
  only when it is started again.

    run.py        `run_agent`: one agent from its start to its stop
    agent.py      follow → reconcile → act: the loop
    reconcile.py  what is wanted and what is there → what to do (pure)
    replica.py    the life of one replica: start, watch, probe, stop
    driver.py     what a driver is; exec_driver.py runs programs of this machine
    health.py     probes → healthy or not (pure); probe.py asks
    journal.py    what outlives the agent, on disk
    reports.py    instances to the log, on change only, until stored
    heartbeat.py  what the node and its replicas use; node.py what the node is
"""
