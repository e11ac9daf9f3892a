"""What a ``source`` of PACE data is: the shipped ``mini``, the hub's repository, or a local folder. Ours."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from pace_dspy.data.hub import HUB_REPO, download_pace
from pace_dspy.data.parquet import TABLES, find_files
from pace_dspy.errors import DataError
from pace_dspy.paths import as_path

MINI = "mini"
"""The word that names the dataset shipped inside the package."""

_REMEDY = (
    f"Give {MINI!r} (shipped), {HUB_REPO!r} (downloaded), a folder with corpus, queries and profiles .parquet "
    "(directly or in data/), or a folder with kb/<case_id>/ and profile/"
)


@dataclass(frozen=True)
class Source:
    """A place to load from.

    Attributes:
        kind: Its format.
        folder: The parquet folder, or the folder that holds ``kb`` and ``profile``.
        name: Default name of the dataset.
    """

    kind: Literal["parquet", "json"]
    folder: Path
    name: str

    def corpus_file(self, case_id: str) -> str:
        """Return the file that holds the facts of a case."""
        return self._file(case_id, "corpus")

    def queries_file(self, case_id: str) -> str:
        """Return the file that holds the requests of a case."""
        return self._file(case_id, "queries")

    def _file(self, case_id: str, table: str) -> str:
        if self.kind == "json":
            return str(self.folder / "kb" / case_id / f"{table}.json")
        return str(find_files(self.folder, table)[0])


def mini_path() -> Path:
    """Return the folder of the shipped dataset, in a checkout and in an installed wheel alike."""
    return Path(str(resources.files("pace_dspy.data").joinpath(MINI)))


def find_source(source: str | Path) -> Source:
    """Find out what ``source`` is; downloads when it is the hub's repository.

    Args:
        source: ``"mini"``, ``"p2chp2t/pace"``, or a local folder (which may be the ``kb`` folder itself).

    Raises:
        DataError: There is no such folder, or no PACE data in it.
        MissingExtraError: The hub is asked for without the extra ``hub``.
        DataDownloadError: The download failed.
    """
    if source == MINI:
        return _local(mini_path(), MINI)
    if source == HUB_REPO and not Path(HUB_REPO).exists():
        return _local(download_pace(), "pace")
    folder = as_path(source, "the source of PACE data").expanduser()
    return _local(folder, folder.resolve().name)


def _local(folder: Path, name: str) -> Source:
    if not folder.exists():
        raise DataError("no such folder", file=str(folder), remedy=_REMEDY)
    if not folder.is_dir():
        raise DataError("this is a file, PACE data is a folder", file=str(folder), remedy=_REMEDY)
    if any(find_files(folder, table) for table in TABLES):
        return Source("parquet", folder, name)
    if (folder / "kb").is_dir():
        return Source("json", folder, name)
    if folder.resolve().name == "kb" and any(folder.glob("*/corpus.json")):
        return Source("json", folder.parent, folder.resolve().parent.name)
    raise DataError("no PACE data in this folder", file=str(folder), remedy=_REMEDY)
