"""The second interpreter of a `Service`: the services that run in production, on a virtual clock and an in-memory log.

One seed makes one world and all that happens in it, so a failure is found again by its number. What the log does is what
`tests/integration/test_log_assumptions.py` shows the real server doing; what the processes do is what `shared.runtime`
does; what goes wrong comes from `faults`; what must never happen is in `invariants`.
"""
