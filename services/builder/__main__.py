"""`python -m services.builder`: one instance of the builder."""

from services.builder.config import BuilderConfig
from services.builder.service import service
from shared.runtime.run import main
from shared.runtime.settings import Settings


def config_of(settings: Settings) -> BuilderConfig:
    """What the environment says about orders."""
    return BuilderConfig(
        source_url_base=settings.source_url_base,
        registry_address=settings.registry_address,
        local_load=settings.local_load,
    )


if __name__ == "__main__":
    main(lambda settings: service(config_of(settings)))
