"""Copies, saved programs, threads: the program never carries an index, a key or anyone else's facts."""

import copy
import pickle
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import dspy
import pytest
from program_helpers import DAY, ask, make_kb
from scripted import GOOD, prompt_of, scripted_lm

from pace_dspy.artifacts import load_program, save_program
from pace_dspy.backends.cache import ReplyCache
from pace_dspy.backends.lm import make_lm
from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import ConfigError
from pace_dspy.program import PaceMakerProgram


def test_a_deep_copy_with_a_large_kb_costs_under_a_megabyte():
    make_kb("large", n=2000)
    program = PaceMakerProgram()
    with dspy.context(lm=scripted_lm(GOOD)):
        program(request="Book dinner on Friday", reference_date=DAY, kb_id="large")
    program.deepcopy()
    tracemalloc.start()
    copied = program.deepcopy()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert copied is not program
    assert size < 1_000_000


def test_an_index_refuses_to_be_copied_or_pickled(kb):
    with pytest.raises(TypeError, match="never copied or pickled"):
        copy.deepcopy(kb)
    with pytest.raises(TypeError, match="never copied or pickled"):
        pickle.dumps(kb)


def test_a_saved_program_holds_no_index_key_address_or_kb_text(kb, tmp_path):
    lm = make_lm(
        "openai-compatible",
        environ={
            "PACE_BASE_URL": "http://secret-host:9/v1",
            "PACE_MODEL": "some-model",
            "PACE_API_KEY": "canary-key-123",
        },
    )
    program = PaceMakerProgram()
    program.answerer.predict.lm = lm
    save_program(program, tmp_path / "saved", backend="openai-compatible")
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["manifest.json", "program.json"]
    for path in (tmp_path / "saved").iterdir():
        text = path.read_text()
        for secret in ("canary-key-123", "secret-host", "notes plan"):
            assert secret not in text, path.name


def test_a_reloaded_program_is_the_saved_one(kb, tmp_path):
    program = PaceMakerProgram()
    program.planner.predict.signature = program.planner.predict.signature.with_instructions("Plan with great care.")
    program.post_filter.predict.demos = [
        dspy.Example(request="r", today="t", candidates="[1] a", selected=[1]).with_inputs("request")
    ]
    save_program(program, tmp_path / "saved", backend="local")
    loaded = load_program(tmp_path / "saved", PaceMakerConfig(), backend="local")
    prompts = []
    for each in (program, loaded):
        lm = scripted_lm(GOOD)
        with dspy.context(lm=lm):
            each(request="Book dinner on Friday", reference_date=DAY, kb_id="home", persona="Ines")
        prompts.append([prompt_of(request) for _, request in lm.engine.requests])
    assert prompts[0] == prompts[1]
    assert prompts[1][0].startswith("Plan with great care.")
    assert "[1] a" in prompts[1][3]


def test_a_program_that_does_not_fit_is_refused_and_another_backend_is_said(kb, tmp_path):
    save_program(PaceMakerProgram(), tmp_path / "saved", backend="openai")
    with pytest.raises(
        ConfigError, match=r"does not fit config 'no-planning': planner.predict: saved .*needed 'nothing'"
    ):
        load_program(tmp_path / "saved", PaceMakerConfig.load("no-planning"), backend="openai")
    said = []
    load_program(tmp_path / "saved", PaceMakerConfig(), backend="local", warn=said.append)
    assert said == [
        f"program {tmp_path / 'saved' / 'program.json'} was compiled on backend 'openai' and now runs on 'local'"
    ]


@pytest.mark.parametrize("content", ["", "[1]", "{", None])
def test_a_damaged_or_missing_program_is_one_clear_line(tmp_path, content):
    folder = tmp_path / "saved"
    save_program(PaceMakerProgram(), folder, backend="local")
    if content is None:
        (folder / "program.json").unlink()
    else:
        (folder / "program.json").write_text(content)
    with pytest.raises(ConfigError, match=r"no program at|cannot be read|does not hold"):
        load_program(folder, PaceMakerConfig(), backend="local")


def test_no_pickle_is_written(tmp_path):
    for path, whole in ((tmp_path / "p.pkl", False), (tmp_path / "folder", True)):
        with pytest.raises(ConfigError, match=r"ends in \.json"):
            PaceMakerProgram().save(path, save_program=whole)


def test_two_kbs_in_eight_threads_never_mix():
    make_kb("anna", n=60, owner="Anna")
    make_kb("boris", n=60, owner="Boris")
    program, seen, lock = PaceMakerProgram(), [], threading.Lock()

    def answer(prompt):
        with lock:
            seen.append(prompt)
        return GOOD["answerer"](prompt)

    lm = scripted_lm({**GOOD, "answerer": answer})

    def run(number):
        kb_id, other = (("anna", "Boris"), ("boris", "Anna"))[number % 2]
        with dspy.context(lm=lm):
            prediction = program(request=f"Book dinner {number}", reference_date=DAY, kb_id=kb_id, persona=kb_id)
        ids = {*prediction.evidence, *(fact.doc_id for fact in prediction.trace.pool)}
        return prediction.trace.kb_id == kb_id and all(doc_id.startswith(f"{kb_id}-") for doc_id in ids), other

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(run, range(200)))
    assert all(ok for ok, _ in results)
    assert len(seen) == 200
    assert not any("Anna" in prompt and "Boris" in prompt for prompt in seen)
    prompts = [(stage, prompt_of(request)) for stage, request in lm.engine.requests]
    assert not any("Anna notes" in prompt and "Boris notes" in prompt for _, prompt in prompts)


def test_validated_replies_are_reused_and_bad_ones_are_not(kb, tmp_path):
    cache = ReplyCache(tmp_path / "replies")
    prediction, lm = ask({**GOOD, "planner": ["prose", "prose"]}, reply_cache=cache)
    assert [fallback.stage for fallback in prediction.trace.fallbacks] == ["planner"]
    again, second = ask(GOOD, reply_cache=cache)
    assert second.engine.calls("planner") == 1
    third, lm3 = ask({}, reply_cache=cache)
    assert lm3.engine.requests == []
    assert (third.decision, third.evidence) == (again.decision, again.evidence)
    assert [(usage.calls, usage.cached_calls, usage.prompt_tokens) for usage in third.trace.usage] == [(0, 1, 0)] * 5
    assert lm.engine.calls("planner") == 2
