"""MLflow: the only file that imports it, and only when a run is tracked.

Tracking trouble never stops or changes a run: every action goes through `Tracker`, which reports the first failure
once and then does nothing more. Nothing is sent anywhere but to the tracking store: MLflow's own telemetry is off.

SQLite is the default store (MLflow refuses folders since 3.13); its migrations and the creation of experiments are
not safe between processes, so the first contact happens under a file lock beside the database.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock

from pace_dspy.backends.secrets import known_secrets
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.spans import RequestSpans, span_dict

URI_ENV = "MLFLOW_TRACKING_URI"
DATABASE = Path("artifacts") / "mlflow.db"
GROUP_TAG = "pace.group"
SHOWN_DIGEST = 12
LOCK_TIMEOUT_S = 120.0
TEXT_SUFFIXES = {".json", ".jsonl", ".html", ".md", ".csv", ".txt", ".toml"}
PROGRAM_FOLDER = "program"
RUNS_URI = "runs:/"
_LOADER = "pace_dspy.tracked_program"
_SQLITE = "sqlite:///"
_RETRY_WAITS_S = (0.5, 2.0)
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # MLflow prices spans with LiteLLM, which would fetch its price list
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # stdout is for results
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}

T = TypeVar("T")
Metric = tuple[str, float, int]
"""Name, value, step."""


def default_uri(start: Path | None = None) -> str:
    """Return ``sqlite:///.../artifacts/mlflow.db`` under the project folder.

    Args:
        start: Where to look from, the current folder by default; the project folder is the nearest one upwards with
            a ``pyproject.toml`` or ``.git``, else ``start`` itself.
    """
    here = (start or Path.cwd()).resolve()
    project = next(
        (at for at in (here, *here.parents) if (at / "pyproject.toml").exists() or (at / ".git").exists()), here
    )
    return f"{_SQLITE}{(project / DATABASE).as_posix()}"


def tracking_uri() -> str:
    """Return ``$MLFLOW_TRACKING_URI``, or the default database."""
    return os.environ.get(URI_ENV, "").strip() or default_uri()


@cache
def fetch_program(uri: str) -> Path:
    """Return a folder with the files of a program that `Tracker.program` stored; it lives as long as the process.

    Args:
        uri: ``runs:/RUN_ID/program``, in the store of `tracking_uri`.

    Raises:
        ConfigError: There is no such run or artifact, or the store cannot be reached.
    """
    store = tracking_uri()
    local = store.startswith(_SQLITE)
    place = f"the MLflow store {store if local else f'of ${URI_ENV}'}"
    if local and not Path(store.removeprefix(_SQLITE).partition("?")[0]).is_file():
        raise ConfigError(f"no program at {uri}: {place} does not exist; set {URI_ENV} to another one")
    _load_mlflow()
    from mlflow.artifacts import download_artifacts

    kept = tempfile.TemporaryDirectory(prefix="pace-program-")
    _FETCHED.append(kept)
    try:
        with _quiet_logs():
            found = Path(download_artifacts(artifact_uri=uri, dst_path=kept.name, tracking_uri=store))
    except Exception as exc:
        cause = _scrub(" ".join(f"{type(exc).__name__}: {exc}".split())[:200], known_secrets(os.environ))
        raise ConfigError(f"no program at {uri} in {place} ({cause}); set {URI_ENV} to another one") from exc
    return next((path.parent for path in sorted(found.rglob("program.json"))), found)


_FETCHED: list[tempfile.TemporaryDirectory[str]] = []


class Tracker:
    """One MLflow experiment, with a parent run for each group of runs. Use it from one thread.

    Every method returns ``None`` (and has done nothing, or only a part) after trouble; none raises.

    Args:
        experiment: Name of the MLflow experiment.
        uri: Tracking store; `tracking_uri` by default.
        on_trouble: Called once, with one line, when tracking fails.
    """

    def __init__(
        self, experiment: str, *, uri: str | None = None, on_trouble: Callable[[str], None] | None = None
    ) -> None:
        self.experiment = experiment
        self.uri = uri or tracking_uri()
        self.trouble: str | None = None
        self._on_trouble = on_trouble
        self._client: Any = None
        self._experiment_id = ""
        self._secrets = known_secrets(os.environ)

    @property
    def place(self) -> str:
        """A short name of the store that holds no credentials; for records in run folders."""
        return hashlib.sha256(self.uri.encode()).hexdigest()[:16]

    def group(self, key: str, name: str, tags: Mapping[str, str]) -> str | None:
        """Return the parent run of a group, found by its key or made new.

        Args:
            key: The same key finds the same parent, from any process.
            name: Name of a new parent.
            tags: Tags of a new parent.
        """
        return self.safely(lambda: self._group(key, name, tags))

    def start(self, run_id: str | None, parent_id: str | None, name: str, tags: Mapping[str, str]) -> str | None:
        """Return a running run: the one given when it still exists, else a new child of ``parent_id``."""
        return self.safely(lambda: self._start(run_id, parent_id, name, tags))

    def has(self, run_id: str) -> bool:
        """Say whether a run exists and was not deleted."""
        return bool(self.safely(lambda: self._exists(run_id)))

    def dataset(self, run_id: str, name: str, digest: str, part: str) -> None:
        """Name the data of a run, so that the UI lists and filters by it; the data itself is not stored."""
        self.safely(lambda: self._dataset(run_id, name, digest, part))

    def params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Log parameters; those logged before are fixed and stay as they are."""
        self.safely(lambda: self._params(run_id, params))

    def tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags."""
        self.safely(lambda: self._batch(run_id, tags=tags))

    def metrics(self, run_id: str, metrics: Sequence[Metric], *, again: bool = False) -> None:
        """Log metrics.

        Args:
            run_id: The run.
            metrics: Name, value, step.
            again: The run was logged before: leave out what is there already.
        """
        self.safely(lambda: self._metrics(run_id, metrics, again))

    def text(self, run_id: str, text: str, path: str) -> None:
        """Store a text as an artifact, without keys."""
        self.safely(lambda: self._client.log_text(run_id, self.scrub(text), path))

    def table(self, run_id: str, records: Sequence[Mapping[str, Any]], path: str) -> None:
        """Store records as a table that the UI shows and compares (pandas' split form, JSON)."""
        self.safely(lambda: self._table(run_id, records, path))

    def file(self, run_id: str, source: Path, folder: str | None = None) -> None:
        """Store a file as an artifact, texts without keys."""
        self.safely(lambda: self._file(run_id, source, folder))

    def program(self, run_id: str, folder: Path) -> None:
        """Store a saved program (its JSON files) as a model that MLflow loads, without any pickle.

        Args:
            run_id: The run.
            folder: Where ``program.json`` and ``manifest.json`` are.
        """
        self.safely(lambda: self._program(run_id, folder))

    def trace(self, run_id: str, found: RequestSpans, tags: Mapping[str, str]) -> str | None:
        """Log the trace of one request, linked to its run; returns the trace's id."""
        return self.safely(lambda: self._trace(run_id, found, tags))

    def finish(self, run_id: str, status: str = "FINISHED") -> None:
        """End a run: FINISHED, FAILED or KILLED (stopped early)."""
        self.safely(lambda: self._client.set_terminated(run_id, status))

    def scrub(self, text: str) -> str:
        """Return a text without any key that the environment holds."""
        return _scrub(text, self._secrets)

    def safely(self, action: Callable[[], T]) -> T | None:
        """Return what ``action`` returns; report trouble once, and then do nothing more."""
        if self.trouble is not None:
            return None
        try:
            _load_mlflow()  # sets the levels of its loggers, so before they are quieted
            with _quiet_logs():
                self._connect()
                return self._with_retries(action)
        except Exception as exc:  # the whole point: no trouble of the tracking store may reach the run
            cause = " ".join(f"{type(exc).__name__}: {exc}".split())[:300]
            self.trouble = self.scrub(f"MLflow tracking is off for the rest of this run ({cause})")
            if self._on_trouble is not None:
                self._on_trouble(f"{self.trouble}. Nothing else is affected; the same command logs it again later")
            return None

    def _with_retries(self, action: Callable[[], T]) -> T:
        for wait in _RETRY_WAITS_S:
            try:
                return action()
            except Exception as exc:
                if getattr(exc, "error_code", "") != "TEMPORARILY_UNAVAILABLE":
                    raise
                time.sleep(wait)
        return action()

    def _connect(self) -> None:
        if self._client is not None:
            return
        from mlflow.tracking import MlflowClient

        with self._lock():
            client = MlflowClient(tracking_uri=self.uri)
            found = client.get_experiment_by_name(self.experiment)
            self._experiment_id = found.experiment_id if found else self._create_experiment(client)
            self._client = client

    def _create_experiment(self, client: Any) -> str:
        place = None
        if self.uri.startswith(_SQLITE):
            folder = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in self.experiment)
            place = (Path(self.uri.removeprefix(_SQLITE)).resolve().parent / "mlflow-artifacts" / folder).as_uri()
        # Without a kind the UI guesses, and hides the run list of an experiment that holds traces.
        tags = {"mlflow.experimentKind": "custom_model_development"}
        return str(client.create_experiment(self.experiment, artifact_location=place, tags=tags))

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        if not self.uri.startswith(_SQLITE):
            yield
            return
        database = Path(self.uri.removeprefix(_SQLITE).partition("?")[0])
        lock = Path(f"{database}.lock")
        database.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("ab"):  # fail at once: FileLock waits where a lock can never be made
            pass
        with FileLock(lock, timeout=LOCK_TIMEOUT_S):
            with contextlib.closing(sqlite3.connect(database)) as db:  # and MLflow where no database can be opened
                db.execute("PRAGMA schema_version")
            yield

    def _group(self, key: str, name: str, tags: Mapping[str, str]) -> str:
        with self._lock():
            query = f"tags.`{GROUP_TAG}` = '{_group_key(key)}'"
            found = self._client.search_runs([self._experiment_id], query, max_results=1)
            if found:
                return str(found[0].info.run_id)
            return self._create_run(name, {**tags, GROUP_TAG: _group_key(key), "pace.kind": "experiment"})

    def _start(self, run_id: str | None, parent_id: str | None, name: str, tags: Mapping[str, str]) -> str:
        if run_id is not None and self._exists(run_id):
            self._client.update_run(run_id, status="RUNNING")
            self._batch(run_id, tags=tags)
            return run_id
        links = {"mlflow.parentRunId": parent_id} if parent_id else {}
        return self._create_run(name, {"pace.kind": "run", **tags, **links})

    def _create_run(self, name: str, tags: Mapping[str, str]) -> str:
        commit = {"mlflow.source.git.commit": tags["commit"].removesuffix("+changes")} if "commit" in tags else {}
        source = {"mlflow.source.name": "pace-dspy", "mlflow.source.type": "LOCAL", **commit}
        run = self._client.create_run(self._experiment_id, tags=self._clean({**source, **tags}), run_name=name)
        return str(run.info.run_id)

    def _dataset(self, run_id: str, name: str, digest: str, part: str) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        data = Dataset(name=name, digest=digest[:SHOWN_DIGEST], source_type="pace", source="{}")
        self._client.log_inputs(run_id, [DatasetInput(data, [InputTag("mlflow.data.context", part)])])

    def _exists(self, run_id: str) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            return bool(self._client.get_run(run_id).info.lifecycle_stage == "active")
        except MlflowException as exc:
            if exc.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    def _params(self, run_id: str, params: Mapping[str, str]) -> None:
        have = self._client.get_run(run_id).data.params
        self._batch(run_id, params={key: value for key, value in params.items() if key not in have})

    def _metrics(self, run_id: str, metrics: Sequence[Metric], again: bool) -> None:
        have: set[Metric] = set()
        for name in {name for name, _, _ in metrics} if again else ():
            have |= {(name, point.value, point.step) for point in self._client.get_metric_history(run_id, name)}
        self._batch(run_id, metrics=[metric for metric in metrics if metric not in have])

    def _batch(
        self,
        run_id: str,
        *,
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        metrics: Sequence[Metric] = (),
    ) -> None:
        from mlflow.entities import Metric as MlflowMetric
        from mlflow.entities import Param, RunTag

        now = time.time_ns() // 1_000_000
        for part in _chunks(list(self._clean(params or {}).items()), 100):
            self._client.log_batch(run_id, params=[Param(key, value) for key, value in part])
        for part in _chunks(list(self._clean(tags or {}).items()), 100):
            self._client.log_batch(run_id, tags=[RunTag(key, value) for key, value in part])
        for points in _chunks(list(metrics), 1000):
            self._client.log_batch(
                run_id, metrics=[MlflowMetric(name, value, now, step) for name, value, step in points]
            )

    def _clean(self, values: Mapping[str, str]) -> dict[str, str]:
        return {key: self.scrub(value) for key, value in values.items()}

    def _table(self, run_id: str, records: Sequence[Mapping[str, Any]], path: str) -> None:
        columns = list(records[0]) if records else []
        split = {"columns": columns, "data": [[record[name] for name in columns] for record in records]}
        self._client.log_text(run_id, self.scrub(json.dumps(split, ensure_ascii=False)), path)
        self._batch(run_id, tags={"mlflow.loggedArtifacts": json.dumps([{"path": path, "type": "table"}])})

    def _file(self, run_id: str, source: Path, folder: str | None) -> None:
        if source.suffix not in TEXT_SUFFIXES:
            self._client.log_artifact(run_id, str(source), folder)
            return
        text = self.scrub(source.read_text(encoding="utf-8"))
        self._client.log_text(run_id, text, f"{folder}/{source.name}" if folder else source.name)

    def _program(self, run_id: str, folder: Path) -> None:
        from mlflow import pyfunc

        with tempfile.TemporaryDirectory() as place:
            data, model = Path(place) / PROGRAM_FOLDER, Path(place) / "model"
            data.mkdir()
            for source in sorted(folder.glob("*.json")):
                (data / source.name).write_text(self.scrub(source.read_text(encoding="utf-8")), encoding="utf-8")
            needs = [f"pace-dspy=={version('pace-dspy')}"]  # named, so that MLflow does not run the program to find out
            pyfunc.save_model(str(model), loader_module=_LOADER, data_path=str(data), pip_requirements=needs)
            self._client.log_artifacts(run_id, str(model), PROGRAM_FOLDER)

    def _trace(self, run_id: str, found: RequestSpans, tags: Mapping[str, str]) -> str | None:
        if not found.spans:
            return None
        from mlflow.entities import Span, TraceInfo, TraceLocation, TraceState
        from mlflow.tracing.client import TracingClient

        root, otel_id = found.spans[0], os.urandom(16).hex()
        client, trace_id = TracingClient(self.uri), f"tr-{otel_id}"
        client.log_spans(
            self._experiment_id, [Span.from_dict(span_dict(span, trace_id, self.scrub)) for span in found.spans]
        )
        client.start_trace(
            TraceInfo(
                trace_id=trace_id,
                trace_location=TraceLocation.from_experiment_id(self._experiment_id),
                request_time=root.start_ns // 1_000_000,
                execution_duration=(root.end_ns - root.start_ns) // 1_000_000,
                state=TraceState.ERROR if root.error else TraceState.OK,
                request_preview=self.scrub(found.request.query)[:1000],
                response_preview=self.scrub(found.preview)[:1000],
                client_request_id=f"{found.request.case_id}/{found.request.query_id}",
                trace_metadata={"mlflow.sourceRun": run_id, "mlflow.trace_schema.version": "3"},
                tags={"mlflow.traceName": root.name, **self._clean(tags)},
            )
        )
        return trace_id


def _scrub(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _group_key(key: str) -> str:
    return key[:200].replace("'", " ")


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _load_mlflow() -> None:
    """Import MLflow with its telemetry off, and with short waits for a server that does not answer."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import mlflow  # noqa: F401
    from mlflow.telemetry import get_telemetry_client, set_telemetry_client

    if get_telemetry_client() is not None:  # imported before us, with telemetry on
        set_telemetry_client()  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _quiet_logs() -> Iterator[None]:
    """Keep MLflow's and Alembic's messages off the user's screen: we report trouble ourselves, once."""
    loggers = [logging.getLogger(name) for name in ("mlflow", "alembic")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
