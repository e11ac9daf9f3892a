"""Runs spread over a Ray cluster: the only file that imports Ray. Ours.

The driver plans, shards, keeps the limits, tracks and writes the run store; each worker is one Ray actor
(`pace_dspy.evaluation.worker.Worker`). The cluster is the one at ``RAY_ADDRESS``, or one of this machine alone that
lives as long as the run and serves only who has the random token of this process.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pace_dspy.errors import ConfigError, MissingExtraError, PaceError, WorkerLostError, WorkerStartError
from pace_dspy.evaluation.crew import Crew
from pace_dspy.evaluation.flight import Limits, OnRow, Outcome, run_work
from pace_dspy.evaluation.provenance import versions
from pace_dspy.evaluation.queues import Queue, Shards
from pace_dspy.evaluation.recording import Recording
from pace_dspy.evaluation.runner import Job
from pace_dspy.evaluation.store import RunStore
from pace_dspy.evaluation.worker import Done, Worker, WorkerSpec
from pace_dspy.types import Case

ADDRESS_ENV, AUTH_ENV = "RAY_ADDRESS", "RAY_AUTH_MODE"
PLACED_WITHIN_S = 120.0
"""Longest wait for a place in the cluster and for the worker's process to start. Ours."""
_REACHED_WITHIN_S = 5.0
OBJECT_STORE_BYTES = 256 << 20
"""Shared memory of a cluster of our own: facts and rows pass through it and are not kept. Ours."""
SAME_VERSIONS = ("pace-dspy", "dspy")
"""What workers must have in the version of the driver."""


def require_ray() -> None:
    """Refuse to go on without Ray.

    Raises:
        MissingExtraError: It is not installed; holds the pip line.
    """
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError("ray", "ray")


def run_spread(
    spec: WorkerSpec,
    cases: Mapping[str, Case],
    jobs: Sequence[Job],
    store: RunStore,
    *,
    n_workers: int | None,
    concurrency: int | None,
    slots: int,
    limits: Limits,
    on_row: OnRow | None,
    recording: Recording | None,
    on_note: Callable[[str], None],
) -> Outcome:
    """Run what is not finished on workers; see `pace_dspy.evaluation.flight.run_work`.

    Args:
        spec: What each worker builds.
        cases: The personas, by ``case_id``.
        jobs: All requests of the run.
        store: Written by this process alone.
        n_workers: Workers; by default one a CPU of the cluster, or one a machine when each runs a model of its own;
            never more than personas are left.
        concurrency: Requests in flight in all; by default what the backend takes, one a worker at least.
        slots: Requests that the backend takes at once.
        limits: See `run_work`.
        on_row: See `run_work`.
        recording: Who gets the spans of sampled requests.
        on_note: Told, in one sentence, what happens with the workers.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: No cluster at ``RAY_ADDRESS``, or too small a one; or another process works on the run.
        PaceError: A worker cannot be started.
    """
    finished = store.finished()
    personas = len({job.request.case_id for job in jobs if job.key not in finished})
    own_model = spec.settings.backend == "local"
    with cluster(n_workers) as (cpus, nodes):
        n = min(n_workers or (nodes if own_model else cpus), personas, concurrency or personas)
        if n > cpus:
            raise ConfigError(f"--workers {n}: the Ray cluster has {cpus} CPUs, and each worker takes one")
        total = concurrency or (n * slots if own_model else max(n, slots))
        in_flight = [total // n + (number < total % n) for number in range(n)]
        started = time.monotonic()
        with Crew(partial(RayWorker, spec, max(in_flight)), n, cases, recording, on_note) as crew:
            on_note(f"{n} Ray workers ready in {time.monotonic() - started:.1f} s: {'; '.join(crew.names)}")
            return run_on(crew, jobs, store, in_flight, limits, on_row)


def run_on(
    crew: Crew, jobs: Sequence[Job], store: RunStore, slots: Sequence[int], limits: Limits, on_row: OnRow | None
) -> Outcome:
    """Run what is not finished on a crew, sharded by persona; ``slots`` are the requests in flight of each worker."""
    shards: list[Shards[Job]] = []

    def line_up(todo: Sequence[Job]) -> Queue[Job]:
        shards.append(Shards(todo, slots))
        return shards[0]

    def execute(job: Job) -> dict[str, Any]:
        return crew.run(shards[0].worker_of(job), job)

    return run_work(execute, jobs, store, concurrency=sum(slots), limits=limits, on_row=on_row, line_up=line_up)


class RayWorker:
    """A worker in a process of its own, somewhere in the cluster.

    Args:
        spec: What it builds.
        slots: Requests it works on at once.

    Raises:
        WorkerStartError: The cluster has no place for it, it has other versions, or it cannot build what is needed.
    """

    def __init__(self, spec: WorkerSpec, slots: int) -> None:
        import ray

        options = {"num_cpus": 1, "max_concurrency": slots, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        self._actor = ray.remote(Worker).options(**options).remote()
        self.name = "that was starting"
        try:
            self._start(spec)
        except WorkerLostError as exc:
            self.stop()
            raise WorkerStartError(f"a Ray worker cannot start: {exc}") from exc
        except PaceError:
            self.stop()
            raise

    def run(self, job: Job, case: Case | None) -> Done:
        """See `pace_dspy.evaluation.crew.RemoteWorker.run`."""
        done: Done = self._ask("run", job, case)
        return done

    def stop(self) -> None:
        """End its process, if there still is one."""
        import ray

        with contextlib.suppress(Exception):  # it may be gone, and the cluster too
            ray.kill(self._actor, no_restart=True)

    def _start(self, spec: WorkerSpec) -> None:
        found = self._ask("where", wait_s=PLACED_WITHIN_S)
        self.name = f"pid {found['pid']} on {found['host']}"
        ours = versions()
        for package in SAME_VERSIONS:
            if found["versions"].get(package) != ours.get(package):
                raise WorkerStartError(
                    f"worker {self.name} has {package} {found['versions'].get(package)}, this machine "
                    f"{ours.get(package)}; install the same on all machines of the cluster"
                )
        if error := self._ask("start", spec):
            raise WorkerStartError(f"worker {self.name} cannot do this run: {error['message']}")

    def _ask(self, method: str, *arguments: Any, wait_s: float | None = None) -> Any:
        import ray
        from ray.exceptions import GetTimeoutError, RayError

        try:
            return ray.get(getattr(self._actor, method).remote(*arguments), timeout=wait_s)
        except GetTimeoutError as exc:
            raise WorkerLostError(
                f"no process within {wait_s:.0f} s; the cluster is busy or small: give fewer --workers"
            ) from exc
        except RayError as exc:
            raise WorkerLostError(_first_line(exc)) from exc


@contextlib.contextmanager
def cluster(n_workers: int | None) -> Iterator[tuple[int, int]]:
    """Connect to the cluster, or start one for this run.

    Args:
        n_workers: Workers asked for; a cluster of our own has room for them.

    Yields:
        Its CPUs and its machines.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: There is none at ``RAY_ADDRESS``, or it cannot be started.
    """
    require_ray()
    _set_up()
    import ray

    ours = not ray.is_initialized()
    if ours:
        _connect(n_workers)
    try:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        yield int(sum(node["Resources"].get("CPU", 0) for node in nodes)), max(1, len(nodes))
    finally:
        if ours:
            ray.shutdown()


def _set_up() -> None:
    """Set what Ray reads when it is imported: nothing goes to its makers; a cluster of our own asks for a token.

    A process that has imported Ray before us gets Ray's own default, a token in a file of the user's.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    chosen = os.environ.get(ADDRESS_ENV, "").strip() or AUTH_ENV in os.environ or "ray" in sys.modules
    if not chosen:
        os.environ |= {AUTH_ENV: "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def _connect(n_workers: int | None) -> None:
    import ray

    address = os.environ.get(ADDRESS_ENV, "").strip()
    _check_address(address)
    own = {
        "num_cpus": max(os.cpu_count() or 1, n_workers or 1),
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": False,
    }
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM) if main else None
    try:
        more = {"address": address} if address else {"address": "local", **own}
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **more)
    except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as exc:
        if address:
            raise _no_cluster(address, _first_line(exc)) from exc
        raise ConfigError(f"Ray cannot start on this machine: {_first_line(exc)}") from exc
    finally:
        if main:
            signal.signal(signal.SIGTERM, handler)  # Ray put its own there
    # Ray prints lost workers on stdout, which is for results; the crew tells of them.
    ray._private.worker._worker_logs_enabled = False


def _check_address(address: str) -> None:
    """Refuse an address where nothing listens: Ray itself would ask it for ever."""
    if "://" in address:
        raise ConfigError(
            f"{ADDRESS_ENV}={address}: Ray Client is not supported; run the command on a machine of the cluster, with "
            f"{ADDRESS_ENV}=auto"
        )
    if address in ("", "auto"):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise ConfigError(f"{ADDRESS_ENV}={address}: give HOST:PORT of the head, or auto on a machine of the cluster")
    try:
        socket.create_connection((host, int(port)), timeout=_REACHED_WITHIN_S).close()
    except (OSError, OverflowError) as exc:
        raise _no_cluster(address, str(exc)) from exc


def _no_cluster(address: str, why: str) -> ConfigError:
    return ConfigError(
        f"no Ray cluster at {ADDRESS_ENV}={address} ({why}); start one with `ray start --head`, or unset {ADDRESS_ENV} "
        "to use this machine alone"
    )


def _first_line(exc: Exception) -> str:
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return f"{type(exc).__name__}: {lines[0] if lines else 'no details'}"[:300]
