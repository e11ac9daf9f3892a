"""Running one tracked run on PACE-mini with a hash embedder and a scripted model, and reading MLflow back."""

import os
import shutil
from pathlib import Path

from hash_embedder import HashEmbedder
from scripted import GOOD, scripted_lm

from pace_dspy.evaluation import plan as plan_module
from pace_dspy.evaluation.plan import RunSettings, prepare
from pace_dspy.evaluation.run_log import RunLog
from pace_dspy.evaluation.runner import Limits
from pace_dspy.tracking import Tracker


def go_offline(monkeypatch, script=GOOD, lm=None):
    monkeypatch.setattr(plan_module, "make_embedder", lambda spec: HashEmbedder())
    monkeypatch.setattr(plan_module, "make_lm", lambda *_, **__: lm or scripted_lm(script))


def run_tracked(folder, uri, *, experiment="trial", share=0.0, trouble=None, **settings):
    """Run 4 requests of two personas; returns (rows, run id, outcome)."""
    wanted = {"method": "hybrid", "backend": "none", "cases": ("mini_04",), "limit": 4, "index": folder / "indexes"}
    plan = prepare(RunSettings("mini", **{**wanted, **settings}), folder / "run")
    notes = [] if trouble is None else trouble
    log = RunLog(Tracker(experiment, uri=uri, on_trouble=notes.append), plan, group=experiment, trace_share=share)
    outcome = plan.run(Limits(), log.row, log.recording)
    plan.store.export()
    run_id = log.finish(outcome)
    rows = plan.store.rows()
    plan.store.close()
    return rows, run_id, outcome


def client_of(uri):
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri)


def sqlite_uri(folder, template=None):
    """The URI of a database in ``folder``; copied from an empty one, whose migrations take seconds, when given."""
    path = Path(folder) / "mlflow.db"
    if template is not None and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(template, path)
    return f"sqlite:///{path}"


def make_template(folder):
    """An empty MLflow database, migrated."""
    uri = f"sqlite:///{folder}/template.db"
    client_of(uri).search_experiments()
    return folder / "template.db"


def all_bytes(*folders):
    return b"".join(path.read_bytes() for folder in folders for path in Path(folder).rglob("*") if path.is_file())
