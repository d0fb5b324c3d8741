"""What the builder stamps into every order, told at its start."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BuilderConfig:
    """`source_url_base` is the prefix of a source's URL, its digest follows; `registry_address` is `host:port`.

    With `local_load` workers load an image where they run instead of pushing it: it has a tag and no digest then.
    """

    source_url_base: str = ""
    registry_address: str = ""
    local_load: bool = False
