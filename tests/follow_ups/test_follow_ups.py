"""Hand-written follow-ups for the dev requests: what one good second look gives the pool (needs the MiniLM weights)."""

import json
from pathlib import Path

import pytest

from pace_dspy.config import PaceMakerConfig
from pace_dspy.data import load_mini_split, load_pace, select_split
from pace_dspy.knowledge import open_cases
from pace_dspy.methods import without_model
from pace_dspy.modules.second_look import Looked
from pace_dspy.program import PaceMakerProgram
from pace_dspy.retrieval import get_kb, make_embedder
from pace_dspy.steps import look_again
from pace_dspy.types import Task

LOOKS = json.loads(Path(__file__).with_name("dev.json").read_text())["looks"]


def recall(gold, pool, n):
    return len(set(gold) & {fact.doc_id for fact in pool[:n]}) / len(set(gold))


@pytest.mark.llm
def test_one_round_of_good_follow_ups_lifts_the_recall_of_a_fifty_fact_pool(capsys):
    dataset = load_pace("mini")
    dev = select_split(dataset, load_mini_split(dataset), "dev")
    open_cases(dev.cases, make_embedder("minilm"))
    raw = without_model("pacemaker", PaceMakerConfig.load("lite")).model_dump()
    raw["agents"] |= {"rounds": 0}
    plain = PaceMakerProgram(PaceMakerConfig.parse(raw))
    raw["agents"] |= {"rounds": 1}
    looking = PaceMakerConfig.parse(raw)
    before, after = [], []
    for case in dev.cases:
        kb = get_kb(case.case_id)
        for request in case.requests:
            written = LOOKS[f"{request.case_id}/{request.query_id}"]
            looked = Looked(tuple(written["selected"]), tuple(written["follow_ups"]))
            reached = plain(
                request=request.query,
                reference_date=request.reference_date,
                kb_id=kb.kb_id,
                persona=case.persona,
            ).trace
            task = Task(request.query, request.reference_date, kb.kb_id, case.persona)
            again = look_again(task, kb, reached, lambda *_, looked=looked: looked, looking, lambda _: ())
            before.append(recall(request.gold_doc_ids, reached.pool, 50))
            after.append(recall(request.gold_doc_ids, again.final_pool, 50))
    assert len(before) == 20
    means = sum(before) / 20, sum(after) / 20
    with capsys.disabled():
        print(f"\npool recall at 50 on dev, before and after one second look: {means[0]:.3f}, {means[1]:.3f}")
    assert means[1] > means[0] + 0.05
