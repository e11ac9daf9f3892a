"""Every bad input of a compile run ends in one line, with the remedy, before the first paid call."""

import datetime as dt
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hash_embedder import HashEmbedder
from known_skill import PARTS, compilation, dataset, script
from run_folder import answered
from scripted import scripted_lm

from pace_dspy.artifacts import save_program
from pace_dspy.cli import main
from pace_dspy.config import PaceMakerConfig
from pace_dspy.data import fixed_split, load_pace, save_split
from pace_dspy.errors import ConfigError, DataError, MissingKeyError, PaceError
from pace_dspy.evaluation.provenance import RunManifest
from pace_dspy.evaluation.store import RunStore
from pace_dspy.optimization import CompileSettings, prepare
from pace_dspy.program import PaceMakerProgram


def prepared(tmp_path, split=None, *, data=None, lm=None, metric=None, **settings):
    """Prepare a compile run that could be paid for; returns the model."""
    data, lm = data or dataset(), lm or scripted_lm(script())
    save_split(split or fixed_split(dataset(), **PARTS), tmp_path / "side.json")
    fields = {"optimizer": "gepa", "data": "known", "out": tmp_path / "x", "work": tmp_path / "w", "backend": "local"}
    settings = CompileSettings(**{**fields, "split_file": tmp_path / "side.json", **settings})
    prepare(settings, metric=metric, lm=lm, dataset=data, embedder=HashEmbedder())
    return lm


def old_program(tmp_path):
    save_program(PaceMakerProgram(PaceMakerConfig.load("no-planning")), tmp_path / "old", backend="local")
    return {"program": tmp_path / "old"}


def other_data(tmp_path):
    whole = dataset()
    return {"data": type(whole)("known", whole.cases[:-1], "0" * 64)}


def recorded_elsewhere(tmp_path):
    trace = {"fused": [{"doc_id": "of-other-data"}], "pool": [], "looks": []}
    return {"recorded": run_folder(tmp_path / "run", [answered(0, case="anna", trace=trace, query_id="q0")])}


def recorded_of_test_only(tmp_path):
    return {"recorded": run_folder(tmp_path / "run", [answered(0, case="elena", trace={}, query_id="q0")])}


def run_folder(folder, rows):
    manifest = RunManifest(
        method="pacemaker", config={}, dataset="known", dataset_hash="h", backends={}, embedder="hash", seed=0
    )
    store = RunStore.open(folder, manifest)
    for position, row in enumerate(rows):
        store.put(row, position)
    store.close()
    return folder


def gives(value):
    return lambda _: {"metric": lambda example, prediction, trace=None: value}


def when_right(value):
    """A metric that looks fine until an answer is right."""
    return lambda _: {
        "metric": lambda example, prediction, trace=None: value if prediction.decision == example.label else 0.0
    }


BAD = {
    "a metric that returns None": (gives(None), ConfigError, "returned None; it must return a number from 0 to 1"),
    "a metric that returns a bool": (gives(True), ConfigError, r"returned True (bool); it must return a number"),
    "a metric above its range": (gives(1.2), ConfigError, "returned 1.2; it must be from 0 to 1"),
    "a metric below its range": (gives(-1), ConfigError, "returned -1; it must be from 0 to 1"),
    "a metric that is None when right": (when_right(None), ConfigError, "returned None; it must"),
    "a metric that is True when right": (when_right(True), ConfigError, "returned True (bool); it must"),
    "a metric that counts": (when_right(3), ConfigError, "returned 3; it must be from 0 to 1"),
    "an empty train side": (
        lambda _: {"split": fixed_split(dataset(), train=(), dev=PARTS["dev"], test=())},
        ConfigError,
        "the train side of the split has no labelled request; make a split",
    ),
    "an empty dev side": (
        lambda _: {"split": fixed_split(dataset(), train=PARTS["train"], dev=(), test=())},
        ConfigError,
        "the dev side of the split has no labelled request; make a split",
    ),
    "a split file of other data": (other_data, DataError, "made for other data"),
    "no split file": (lambda _: {"split_file": None}, ConfigError, "needs --split-file; make one"),
    "a program of other signatures": (old_program, ConfigError, "does not fit config 'paper'"),
    "a reflection model without key": (
        lambda _: {"prompt_backend": "openai"},
        MissingKeyError,
        "OPENAI_API_KEY is not set",
    ),
    "a recorded run of other data": (
        recorded_elsewhere,
        ConfigError,
        "is of other data: case anna has no fact 'of-other-data'",
    ),
    "a recorded run of test personas only": (recorded_of_test_only, ConfigError, "no finished request of the train"),
    "nothing to do": (lambda _: {"optimizer": "none"}, ConfigError, "changes no prompt: add --calibrate"),
}


@pytest.mark.parametrize("name", BAD)
def test_it_is_refused_in_one_line_before_the_first_paid_call(tmp_path, name):
    make, error, says = BAD[name]
    lm = scripted_lm(script())
    with pytest.raises(PaceError) as caught:
        prepared(tmp_path, lm=lm, **make(tmp_path))
    assert isinstance(caught.value, error)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert lm.engine.requests == []
    assert not (tmp_path / "w").exists(), "nothing is left behind"


def test_the_same_run_without_a_fault_is_prepared(tmp_path):
    assert prepared(tmp_path).engine.requests == []


def test_recorded_lists_are_read_for_train_and_dev_only(tmp_path):
    def row(case, place):
        trace = {"fused": [{"doc_id": f"{case}-g0a"}], "pool": [{"doc_id": f"{case}-g0a"}], "looks": []}
        return answered(place, case=case, trace=trace) | {"query_id": "q0", "reference_date": str(dt.date(2026, 3, 18))}

    rows = [row(case, place) for place, case in enumerate(("anna", "clara", "elena"))]
    made, lm = compilation(tmp_path, "bootstrap", stages="filters", recorded=run_folder(tmp_path / "run", rows))
    assert set(made.recorded) == {("anna", "q0"), ("clara", "q0")}
    assert lm.engine.requests == []


# ---------------------------------------------------------------- the command


class Counting(BaseHTTPRequestHandler):
    """A server that would be paid: it counts what reaches it."""

    def do_POST(self):
        self.server.seen.append(self.path)
        self.send_response(500)
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *arguments):
        pass


@pytest.fixture
def paid_server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    made.seen = []
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def side_file(tmp_path, **changes):
    split = {part: list(load_mini(part)) for part in ("train", "dev", "test")} | changes
    save_split(fixed_split(load_pace("mini"), **split), tmp_path / "side.json")
    return ["--split-file", tmp_path / "side.json"]


def load_mini(part):
    from pace_dspy.data import load_mini_split

    return load_mini_split(load_pace("mini")).part(part)


def foreign_split(tmp_path):
    arguments = side_file(tmp_path)
    content = json.loads((tmp_path / "side.json").read_text())
    (tmp_path / "side.json").write_text(json.dumps({**content, "data_hash": "0" * 64}))
    return arguments


COMMANDS = {
    "an empty side": (lambda tmp: side_file(tmp, dev=[]), "the dev side of the split has no labelled request"),
    "a split of other data": (foreign_split, "made for other data"),
    "a program of other signatures": (
        lambda tmp: ["--program", old_program(tmp)["program"]],
        "does not fit config 'paper'",
    ),
    "a reflection model without key": (lambda tmp: ["--prompt-backend", "gemini"], "GEMINI_API_KEY is not set"),
    "a program that is not in MLflow": (
        lambda tmp: ["--program", "runs:/none/program"],
        "no program at runs:/none/program",
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_prints_one_line_and_asks_no_server(tmp_path, monkeypatch, capsys, paid_server, name):
    make, says = COMMANDS[name]
    monkeypatch.setenv("PACE_BASE_URL", f"http://127.0.0.1:{paid_server.server_port}/v1")
    monkeypatch.setenv("PACE_MODEL", "m")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/none.db")
    base = ["compile", "--out", tmp_path / "x", "--work", tmp_path / "w", "--optimizer", "gepa", "--backend"]
    arguments = ["pace-dspy", *base, "openai-compatible", *make(tmp_path)]
    monkeypatch.setattr("sys.argv", list(map(str, arguments)))
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    assert says in err
    assert paid_server.seen == []
    assert not (tmp_path / "x").exists()
