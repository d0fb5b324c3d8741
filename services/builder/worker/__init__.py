"""The reference worker: takes the orders of one worker's name, runs a command for each, streams its output, reports.

Reads its own `BuildOrder` and the `BuildPool` it belongs to. Owns its `BuildWorker` and `BuildReport` records, its
heartbeat and the log lines of what it builds.
Promises: it runs an order that is for this life of it and no other, one at a time, once; what has no order any more is
stopped; a report is stored before it is forgotten; a build does not outlive its worker.

`worker` is the loop, `process` runs the command, `template` says which, `lines` carries the output to the log.
"""
