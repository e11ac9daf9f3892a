"""Download of the PACE release from the Hugging Face hub (extra ``hub``). Paper: PACE release."""

from __future__ import annotations

from pathlib import Path

from pace_dspy.errors import MissingExtraError, PaceError

HUB_REPO = "p2chp2t/pace"
"""Repository id of the release. Paper: PACE release."""


class DataDownloadError(PaceError):
    """The data could not be downloaded: no network, no such repository, or no space. Ours."""


def download_pace(repo_id: str = HUB_REPO) -> Path:
    """Download the parquet files, or take them from the hub's own cache.

    Args:
        repo_id: Dataset repository.

    Returns:
        The local folder that holds ``data/*.parquet``.

    Raises:
        MissingExtraError: ``huggingface_hub`` is not installed.
        DataDownloadError: The hub cannot be reached and the cache has no copy.
    """
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError as error:
        raise MissingExtraError("huggingface_hub", "hub") from error
    import httpx

    try:
        folder = huggingface_hub.snapshot_download(
            repo_id, repo_type="dataset", allow_patterns=["*.parquet"], etag_timeout=10
        )
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, httpx.HTTPError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataDownloadError(
            f"{repo_id} could not be downloaded ({type(error).__name__}: {reason}). Check the network, HF_ENDPOINT and "
            f"HF_HUB_OFFLINE, or load a local copy by its path; load_pace('mini') needs no download"
        ) from error
    return Path(folder)
