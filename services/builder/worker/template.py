"""Which command builds: an argv with names in braces, filled from the order. No shell is involved.

A word that is one name of several values (`{build_args}`, `{platforms}`) becomes as many words. The same values are in
the environment of the command, as `STEER_BUILD_<NAME>`.
"""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from shared.errors import ConfigurationError
from shared.model.build_worker import BuildOrder

_NAME = re.compile(r"\{([a-z_]+)\}")

BUILDCTL = (
    "buildctl --addr {address} build --progress plain --frontend dockerfile.v0"
    " --opt context={source_url} --opt filename={dockerfile} {build_args} {platform}"
    " --output type=image,name={push_reference},push={push} --metadata-file {metadata_file}"
)
"""The default: a buildkitd that fetches the source by its URL and pushes the image."""

NAMES = frozenset({
    "address", "build", "attempt", "source_url", "push_reference", "push", "type", "dockerfile", "cache_key",
    "metadata_file", "directory", "build_args", "platform", "platforms",
})  # fmt: skip
_SEVERAL = frozenset({"build_args", "platform"})


def parse(text: str) -> tuple[str, ...]:
    """The words of a template. Raises `ConfigurationError` for an unknown name, or what is no argv."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigurationError(f"--command {text!r}: {error}") from None
    if not words:
        raise ConfigurationError("--command: empty")
    unknown = sorted({name for word in words for name in _NAME.findall(word)} - NAMES)
    if unknown:
        raise ConfigurationError(f"--command: unknown {', '.join(unknown)}; there are {', '.join(sorted(NAMES))}")
    return words


def fill(words: tuple[str, ...], order: BuildOrder, address: str, directory: Path) -> list[str]:
    """The argv of one build."""
    several = {
        "build_args": [
            part for name, value in order.build_args.items() for part in ("--opt", f"build-arg:{name}={value}")
        ],
        "platform": ["--opt", f"platform={','.join(order.platforms)}"] if order.platforms else [],
    }
    values = values_of(order, address, directory)
    filled: list[str] = []
    for word in words:
        name = word[1:-1]
        if name in _SEVERAL and word == f"{{{name}}}":
            filled += several[name]
        else:
            filled.append(_NAME.sub(lambda match: values.get(match[1], ""), word))
    return filled


def values_of(order: BuildOrder, address: str, directory: Path) -> dict[str, str]:
    """Each name and its value as a text."""
    return {
        "address": address,
        "build": order.build,
        "attempt": str(order.attempt),
        "source_url": order.source_url,
        "push_reference": order.push_reference,
        "push": "false" if order.local_load else "true",
        "type": order.type,
        "dockerfile": order.dockerfile,
        "cache_key": order.cache_key,
        "metadata_file": str(directory / "metadata.json"),
        "directory": str(directory),
        "build_args": json.dumps(order.build_args, sort_keys=True),
        "platform": ",".join(order.platforms),
        "platforms": ",".join(order.platforms),
    }


def environment(order: BuildOrder, address: str, directory: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """What programs need to run at all, and the order. The worker's own keys to the bus are not passed on."""
    named = {f"STEER_BUILD_{name.upper()}": value for name, value in values_of(order, address, directory).items()}
    return {name: value for name, value in inherited.items() if not name.startswith("STEER_")} | named
