"""Examples and program size: who is in them, what a demo may hold, how large a compiled prompt can get."""

import json
import re

import dspy
import pytest
from hash_embedder import HashEmbedder
from known_skill import DAY, PARTS, dataset
from scripted import prompt_of, scripted_lm

from pace_dspy.artifacts import load_program, save_program
from pace_dspy.backends.budget import prompt_tokens
from pace_dspy.config import PaceMakerConfig
from pace_dspy.data import fixed_split
from pace_dspy.errors import ConfigError, DataError
from pace_dspy.knowledge import open_cases
from pace_dspy.optimization.examples import (
    TRAIN_CANDIDATES,
    Sets,
    answer_sets,
    check_personas,
    filter_sets,
    request_sets,
)
from pace_dspy.optimization.snapshot import (
    DEMO_CHARS,
    DEMO_LINES,
    INSTRUCTION_CHARS,
    PredictorState,
    apply,
    fits,
    kept_demos,
    same,
    short_demo,
    snapshot,
)
from pace_dspy.optimization.stage_programs import freeze, predictor_stages, thaw
from pace_dspy.program import PaceMakerProgram
from pace_dspy.retrieval import KbIndex, register_kb
from pace_dspy.signatures import SelectEvidence
from pace_dspy.types import Fact, FusedHit, PoolFact, Trace

WINDOW = 8192


@pytest.fixture
def sets(tmp_path):
    data = dataset()
    open_cases(data.cases, HashEmbedder(), folder=tmp_path.parent / "known-indexes")
    return request_sets(data, fixed_split(data, **PARTS))


def test_every_persona_is_on_its_side_only(sets):
    assert {example.case_id for example in sets.train} == set(PARTS["train"])
    assert {example.case_id for example in sets.dev} == set(PARTS["dev"])
    split = fixed_split(dataset(), **PARTS)
    check_personas(sets, split)
    with pytest.raises(DataError, match="elena of the examples is in test"):
        check_personas(Sets((sets.train[0].copy(case_id="elena"),), sets.dev, {}), split)
    with pytest.raises(DataError, match="clara of the examples is in train and dev"):
        check_personas(Sets((sets.train[0].copy(case_id="clara"),), sets.dev, {}), split)


def test_a_limit_takes_requests_of_all_personas(sets):
    few = request_sets(dataset(), fixed_split(dataset(), **PARTS), 4)
    assert [example.case_id for example in few.train] == ["anna", "boris", "anna", "boris"]


def test_the_answerers_examples_hold_gold_and_near_distractors(sets):
    made = answer_sets(sets, 4, seed=3)
    one = made.train[0]
    assert len(one.offered) == 6
    assert set(one.gold_doc_ids) < set(one.offered)
    shown = dict(re.findall(r"^\[(\d+)\] (.*)$", one.evidence, flags=re.M))
    assert sorted(shown[str(number)] for number in one.cited) == [
        "anna decisive note 0a blocks visit0 entirely.",
        "anna decisive note 0b blocks visit0 entirely.",
    ]
    assert (one.decision, one.response) == ("conflict", "anna: it blocks.")
    again, other = answer_sets(sets, 4, seed=3), answer_sets(sets, 4, seed=4)
    assert [example.offered for example in again.train] == [example.offered for example in made.train]
    assert [example.offered for example in other.train] != [example.offered for example in made.train]
    alone = Sets(sets.train[:1], sets.dev[:1], {})
    assert answer_sets(alone, 4, seed=3).train[0].offered == one.offered


def test_a_filters_training_lists_are_short_and_its_dev_lists_are_whole(sets):
    def trace(example):
        rest = [f"{example.case_id}-f{i}" for i in range(22)]
        gold = list(example.gold_doc_ids)
        return Trace(example.kb_id, DAY, pool=tuple(PoolFact(doc, 0) for doc in [*rest, *gold] * 1))

    traces = {(e.case_id, e.query_id): trace(e) for e in (*sets.train, *sets.dev)}
    del traces["anna", "q0"]
    traces["boris", "q0"] = Trace("boris", DAY, pool=(PoolFact("boris-g0a", 0),))
    made = filter_sets(sets, "post_filter", traces, 10, "selected")
    assert made.dropped == {"no gold fact among the candidates, or too few to choose from": 2}
    assert {len(example.offered) for example in made.train} == {TRAIN_CANDIDATES}
    assert {len(example.offered) for example in made.dev} == {24}
    one = made.train[0]
    assert [one.offered[number - 1] for number in one.selected] == list(one.gold_doc_ids)


def test_frozen_agents_are_left_alone_and_thawed_again():
    program = PaceMakerProgram()
    assert predictor_stages(program)["post_filter.predict"] == "post_filter"
    freeze(program, ["answerer.predict"])
    assert list(predictor_stages(program)) == ["answerer.predict"]
    assert len(predictor_stages(thaw(program))) == 5


# ---------------------------------------------------------------- size


def long_demo(n=200, chosen=(150, 3)):
    lines = "\n".join(
        f"[{i}] note {i} about something that fills a line of usual length, day {i}" for i in range(1, n + 1)
    )
    return {
        "request": "r", "today": "t", "candidates": lines, "selected": list(chosen),
        "gold_doc_ids": ("secret",), "case_id": "elena", "augmented": True,
    }  # fmt: skip


def test_a_demo_keeps_its_fields_and_a_part_of_the_list():
    short = short_demo(SelectEvidence, long_demo())
    assert sorted(short) == ["candidates", "request", "selected", "today"]
    lines = short["candidates"].splitlines()
    assert len(lines) == DEMO_LINES
    assert [lines[number - 1].split("] ")[1].split(" about")[0] for number in short["selected"]] == [
        "note 150",
        "note 3",
    ]
    assert [line.split("]")[0] for line in lines] == [f"[{number}" for number in range(1, DEMO_LINES + 1)]
    assert short_demo(SelectEvidence, short) == short, "applying it again changes nothing"


def test_demos_of_a_predictor_stay_under_the_limit():
    kept = kept_demos(SelectEvidence, [long_demo() for _ in range(16)])
    assert 1 <= len(kept) < 16
    assert sum(len(json.dumps(demo)) for demo in kept) <= DEMO_CHARS
    assert kept_demos(SelectEvidence, kept) == kept
    assert kept_demos(SelectEvidence, [{"request": "without any output"}]) == ()


def test_too_long_an_instruction_does_not_fit():
    assert fits({"a": PredictorState("x" * INSTRUCTION_CHARS, ())})
    assert not fits({"a": PredictorState("x" * (INSTRUCTION_CHARS + 1), ())})


def test_a_compiled_post_hop_prompt_stays_inside_the_embedded_models_window(tmp_path):
    """The largest program that can be accepted, on the largest pool the paper reports: 190 facts."""
    facts = [
        Fact(f"f{i}", f"Note {i} tells in one sentence of usual length what happened on day {i} at home.")
        for i in range(200)
    ]
    register_kb(KbIndex.build("big", facts, HashEmbedder()), replace=True)
    program = PaceMakerProgram()
    apply(
        program,
        {
            "post_filter.predict": PredictorState(
                "Select. " * (INSTRUCTION_CHARS // 8), kept_demos(SelectEvidence, [long_demo()] * 9)
            )
        },
    )
    assert sum(len(demo["candidates"].splitlines()) for demo in program.post_filter.predict.demos) < 200
    save_program(program, tmp_path / "large", backend="local")
    loaded = load_program(tmp_path / "large", PaceMakerConfig(), backend="local")
    assert same(snapshot(program), snapshot(loaded))
    lm = scripted_lm({"post_filter": lambda _: {"selected": [1]}}, window=WINDOW)
    from pace_dspy.program import as_pool, candidates
    from pace_dspy.retrieval import get_kb
    from pace_dspy.types import Task

    offered = candidates(get_kb("big"), [FusedHit("f0", 1.0)], as_pool([f"f{i}" for i in range(190)]))
    with dspy.context(lm=lm):
        loaded.post_filter(Task("Book dinner", DAY, "big"), offered)
    request = lm.engine.requests[0][1]
    assert prompt_tokens(lm, [{"content": prompt_of(request)}]) + request.config.max_tokens <= WINDOW
    shown = len(re.findall(r"^\[\d+\] Note", prompt_of(request), flags=re.M))
    assert shown >= 50, "room for more than half a median pool"


def test_an_unknown_split_side_is_no_example(tmp_path):
    data = dataset()
    with pytest.raises(ConfigError, match="dev side"):
        request_sets(data, fixed_split(data, train=PARTS["train"], dev=(), test=()))
