"""The only code that knows nats, asyncio, the clock and the environment.

A service is a value (`shared.service`); this package interprets it on NATS JetStream. What is pure in it (`encode`,
`answers`, `clock`, `sequences`, `quarantine`) does no I/O, and the simulator in `tests/simulation` uses it as it is.
"""
