# ruff: noqa: T201 - its output is the log of the build
"""A build command without a daemon: packs a source archive into an OCI image layout, in a directory per reference.

    python -m services.builder.worker … --command "python3 oci_layout.py --registry DIR"

Everything about the build is in its environment (`STEER_BUILD_…`); the source must be a `file:` URL of a tar archive. The
digest of the image's manifest goes to the metadata file, where a worker looks for it.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import tarfile
import time
import urllib.request
from pathlib import Path


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--registry", type=Path, required=True, help="where the layouts go")
    options.add_argument("--seconds", type=float, default=0, help="how long each file takes")
    options.add_argument("--done", type=Path, help="a file that gets a line per build that was finished")
    given = options.parse_args()
    source = fetch(os.environ["STEER_BUILD_SOURCE_URL"])
    reference = os.environ["STEER_BUILD_PUSH_REFERENCE"]
    print(f"building {reference} from {len(source)} bytes", flush=True)
    layer = repack(source, given.seconds)
    digest = write_layout(given.registry / reference.replace(":", "/"), layer)
    print(f"pushed {reference} as {digest}", flush=True)
    if given.done is not None:
        with given.done.open("a") as file:
            file.write(f"{os.environ['STEER_BUILD_BUILD']} {os.environ['STEER_BUILD_ATTEMPT']}\n")
    Path(os.environ["STEER_BUILD_METADATA_FILE"]).write_text(json.dumps({"containerimage.digest": digest}))


def fetch(url: str) -> bytes:
    if not url.startswith("file:"):
        raise SystemExit(f"{url}: only file: URLs are read here")
    with urllib.request.urlopen(url) as answer:
        data: bytes = answer.read()
        return data


def repack(source: bytes, seconds: float) -> bytes:
    """The archive as a layer that is the same for the same content."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(source)) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for number, member in enumerate(sorted(old.getmembers(), key=lambda each: each.name), 1):
            print(f"step {number}: {member.name}", flush=True)
            time.sleep(seconds)
            member.mtime = 0
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return packed.getvalue()


def write_layout(directory: Path, layer: bytes) -> str:
    """Write an OCI image layout; the digest of its manifest."""
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    compressed = gzip.compress(layer, mtime=0)

    def blob(data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        (blobs / name).write_bytes(data)
        return f"sha256:{name}"

    rootfs = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}
    config = json.dumps(
        {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs}, sort_keys=True
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", config, blob(config)),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", compressed, blob(compressed))],
        },
        sort_keys=True,
    ).encode()
    digest = blob(manifest)
    index = {
        "schemaVersion": 2,
        "manifests": [descriptor("application/vnd.oci.image.manifest.v1+json", manifest, digest)],
    }
    (directory / "index.json").write_text(json.dumps(index))
    (directory / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    return digest


def descriptor(media_type: str, data: bytes, digest: str) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


if __name__ == "__main__":
    main()
