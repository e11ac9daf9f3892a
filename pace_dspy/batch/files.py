"""Names and reading of the files of a round; see `pace_dspy.batch.folder` for what they mean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pace_dspy.batch.lines import parse_line
from pace_dspy.errors import ConfigError

FOLDER_NAME = "batch"
"""In a run folder, unless the user names another place."""
_REQUESTS = re.compile(r"round-([1-9][0-9]*)\.requests\.jsonl")


@dataclass(frozen=True)
class OpenRound:
    """A round whose replies are not there yet.

    Attributes:
        number: From 1.
        prompts: How many.
        model: Who is to be asked, as in every ``body``.
        requests: File of the prompts.
        responses: File that the replies are expected in.
    """

    number: int
    prompts: int
    model: str
    requests: Path
    responses: Path

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}


def requests_path(folder: Path, number: int) -> Path:
    """Return the file of a round's prompts."""
    return folder / f"round-{number}.requests.jsonl"


def responses_path(folder: Path, number: int) -> Path:
    """Return the file of a round's replies."""
    return folder / f"round-{number}.responses.jsonl"


def round_numbers(folder: Path) -> list[int]:
    """Return the numbers of the rounds that were written, in order."""
    with used(folder):
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(found[1]) for name in names if (found := _REQUESTS.fullmatch(name)))


def read_prompts(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of prompts.

    Raises:
        ConfigError: It cannot be read, a line is no prompt, or it is empty.
    """
    with used(path):
        lines = [parse_line(line) for line in path.read_bytes().splitlines()]
    for number, line in enumerate(lines or [None], start=1):
        if line is None or not isinstance(line.get("body"), dict):
            raise ConfigError(f"{path} is damaged (line {number} is no prompt); delete it, and it is written again")
    return [line for line in lines if line is not None]


def read_lines(path: Path) -> list[bytes]:
    """Return the lines of a file of replies with their breaks, none when it is not there or empty."""
    with used(path):
        text = path.read_bytes() if path.exists() else b""
    return [line for line in text.splitlines(keepends=True) if line.strip()]


def round_of(folder: Path, number: int, prompts: list[dict[str, Any]]) -> OpenRound:
    """Return what is to be told about a round without replies."""
    model = str(prompts[0]["body"].get("model")) if prompts else ""
    return OpenRound(number, len(prompts), model, requests_path(folder, number), responses_path(folder, number))


def last_round(folder: Path) -> OpenRound:
    """Return the last round in a folder, or in its subfolder ``batch`` when the folder is that of a run.

    Raises:
        ConfigError: There is none.
    """
    for place in (folder, folder / FOLDER_NAME):
        if numbers := round_numbers(place):
            return round_of(place, numbers[-1], read_prompts(requests_path(place, numbers[-1])))
    raise ConfigError(f"{folder} holds no round; `pace-dspy run ... --backend batch` writes one")


@contextmanager
def used(path: Path) -> Iterator[None]:
    """Turn the refusal of the file system into a `ConfigError`."""
    try:
        yield
    except OSError as exc:
        raise ConfigError(f"{path} cannot be used ({exc.strerror or exc}); give another --batch") from exc
