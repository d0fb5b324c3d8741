"""The `steer` command: what people and CI use to say what they want and to see what is there.

reads     every kind of record, the leases and the quarantine, with plain reads and ordered followers
writes    the kinds that users own, each record with the last sequence that it saw as the expected one; and the
          tombstone of a Node that an operator decommissions
promises  nothing is published before all of it is valid; what is said to be done has been acknowledged by the server;
          the exit code tells the outcome (`exits`)

It decides nothing about the cluster. `up` and `demo` start the processes of a whole control plane on one machine; they
are the only place that knows which processes there are.
"""
