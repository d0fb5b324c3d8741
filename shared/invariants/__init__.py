"""What must hold at every point of the log, whatever went wrong: checked over the log alone.

A checker is called with every commit in the order of the log: a `Moment`, which is what was stored together, and the
world as it stands after it. It yields a `Breach` for what does not hold. The checkers keep a view of their own, so that
they share no mistake with the services: the simulator asks them of every world, and `steer replay --verify` of a real
log.

A decision is judged by what its service had read (`read_sequence`), so that what nobody could know of yet is not held
against it.
"""
