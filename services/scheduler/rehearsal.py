"""What a standby does so that it has little to do when it leads: it decides as the leader does, and keeps none of it.

What it looks at in vain needs no second look before something changes or is due, whoever looks: a decision depends on
the records and on time alone, or on telemetry, which nobody hears without leading; `attend` marks what waits for that.
What it would decide is the leader's to decide. It is looked at again, until the leader's records answer it.
"""

from dataclasses import replace
from datetime import datetime

from services.scheduler.decide import decide
from services.scheduler.looks import settle
from services.scheduler.state import State
from services.scheduler.telemetry import forget
from shared.service import Plan


def rehearse(state: State, now: datetime) -> bool:
    """One pass; whether more is left to look at."""
    forget(state)
    plan = decide(state, now)
    settle(state, _in_vain(plan), now)
    return plan.wake_at == now


def _in_vain(plan: Plan) -> Plan:
    """The looks that came to nothing."""
    looks = {target: look for target, look in plan.looks.items() if not look.decided}
    return replace(plan, decisions=(), looks=looks)
