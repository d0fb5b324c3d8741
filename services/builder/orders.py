"""The order a worker gets, and the image that comes of it: pure.

source = <source_url_base><digest of the archive>
push   = <registry>/<project>/<app>:<build>, in lower case
image  = <registry>/<project>/<app>@<digest>, or the pushed tag where images are loaded in place
"""

from datetime import UTC, datetime

from services.builder.config import BuilderConfig
from shared.model.base import compact
from shared.model.build import BuildRequest, BuildStatus
from shared.model.build_worker import BuildOrder, BuildReport
from shared.subjects import Key

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ORDER = compact(BuildOrder(build="", attempt=0, token="", worker_created_at=_EPOCH, source_url="", push_reference=""))


def repository(config: BuilderConfig, key: Key) -> str:
    return "/".join(part for part in (config.registry_address, *key[:2]) if part).lower()


def push_reference(config: BuilderConfig, key: Key) -> str:
    return f"{repository(config, key)}:{key[2]}".lower()


def order_for(
    config: BuilderConfig, key: Key, request: BuildRequest, attempt: int, token: str, worker_created_at: datetime
) -> BuildOrder:
    """What a worker must run."""
    return _ORDER.replaced(
        build="/".join(key),
        attempt=attempt,
        token=token,
        worker_created_at=worker_created_at,
        source_url=f"{config.source_url_base}{request.source_digest}",
        push_reference=push_reference(config, key),
        type=request.type,
        dockerfile=request.dockerfile,
        build_args=request.build_args,
        platforms=request.platforms,
        cache_key=request.cache_key,
        local_load=config.local_load,
    )


def image_of(config: BuilderConfig, key: Key, report: BuildReport) -> str:
    """The reference to run; empty where a digest is missing that should be there."""
    if config.local_load:
        return push_reference(config, key)
    return f"{repository(config, key)}@{report.image_digest}" if report.image_digest else ""


def platforms_of(status: BuildStatus, report: BuildReport) -> tuple[str, ...]:
    """Those that were built, else those that were asked for."""
    return report.platforms or status.platforms
