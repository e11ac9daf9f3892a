"""The pinned table of model files: ``weights.json`` beside this file, as typed records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from pace_dspy.errors import ConfigError

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in total); may start again from a lower number when another channel is tried."""


class Part(BaseModel):
    """One wheel to download and the member file to read from it.

    Attributes:
        requirement: Exact requirement, as in ``name==1.0``.
        member: Path of the member file inside the wheel.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    requirement: str
    member: str


class Packages(BaseModel):
    """Data-only wheels whose member files, concatenated in order, give the file.

    Attributes:
        pattern: Requirement, a format of ``i``.
        member: Path inside the wheel, a format of ``i``.
        i: First and last number, both included; ``None`` when there is one wheel.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pattern: str
    member: str
    i: tuple[int, int] | None = None

    def parts(self) -> list[Part]:
        """Return the wheels in the order of concatenation."""
        first, last = self.i or (0, 0)
        return [
            Part(requirement=self.pattern.format(i=i), member=self.member.format(i=i)) for i in range(first, last + 1)
        ]


class Hub(BaseModel):
    """The publisher's hub repository."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    repo: str
    file: str
    revision: str = "main"


class Weights(BaseModel):
    """One pinned file of ``weights.json``.

    Attributes:
        name: Key in the table.
        file: What the file is; a file name for most entries.
        size: Exact size in bytes.
        sha256: Pinned hash, hex.
        license: Licence of the weights.
        context: Trained context window in tokens (language models).
        dim: Width of the embedding (embedders).
        pooling: How token vectors become a sentence vector (embedders).
        hub: The publisher's repository, ``None`` when there is none with these bytes.
        packages: The wheels that carry the same bytes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    file: str
    size: int = Field(alias="bytes", gt=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    license: str
    context: int | None = None
    dim: int | None = None
    pooling: str | None = None
    hub: Hub | None = None
    packages: Packages | None = None

    @property
    def filename(self) -> str:
        """Name of the file in the cache folder: the publisher's."""
        if self.hub is not None:
            return self.hub.file.rpartition("/")[2]
        if self.packages is not None and self.packages.i is None:
            return self.packages.member.rpartition("/")[2]
        return self.file


@cache
def table() -> dict[str, Weights]:
    """Return the pinned table, by name."""
    raw = json.loads(Path(__file__).with_name("weights.json").read_text(encoding="utf-8"))
    return {name: Weights(name=name, **entry) for name, entry in raw.items()}


def names() -> tuple[str, ...]:
    """Return the names of all pinned files, in table order."""
    return tuple(table())


def entry(name: str) -> Weights:
    """Return one row of the table.

    Raises:
        ConfigError: Unknown ``name``; the message lists the table.
    """
    if name not in table():
        raise ConfigError(f"no weights named {name!r}; known: {', '.join(names())}")
    return table()[name]


def mismatch(path: Path, weights: Weights) -> str | None:
    """Return why ``path`` is not the pinned file, or ``None`` when its size and SHA-256 are right."""
    size = path.stat().st_size
    if size != weights.size:
        return f"size is {size:,} bytes, not the pinned {weights.size:,}"
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return None if digest == weights.sha256 else f"SHA-256 is {digest}, not the pinned {weights.sha256}"
