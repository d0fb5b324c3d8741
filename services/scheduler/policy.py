"""Which policy owns the number of an environment's replicas, and the least it may come to."""

from typing import Literal

from shared.model.environment import Autoscale, Environment, ServiceSpec

Policy = Literal["resource", "concurrency", "idle"]


def floor(spec: Environment, service: ServiceSpec) -> int:
    """0 for scale to zero, else `min`, at least 1 where a policy may move it."""
    if service.scale_to_zero:
        return 0
    return max(1, spec.replicas.min) if policy_of(spec, service) else spec.replicas.min


def policy_of(spec: Environment, service: ServiceSpec) -> Policy | None:
    """The policy that owns the number of replicas; None = the number is `min`."""
    if service.max_concurrency:
        return "concurrency"
    if _targets(service.autoscale) and spec.replicas.most > max(1, spec.replicas.min):
        return "resource"
    return "idle" if service.scale_to_zero else None


def _targets(autoscale: Autoscale | None) -> bool:
    return autoscale is not None and bool(
        autoscale.target_cpu_percent or autoscale.target_memory_percent or autoscale.target_rps_per_replica
    )
