"""The ``react`` baseline: tools over one KB, bounded turns and sizes, typed errors, recorded fallbacks."""

import copy

import dspy
import pytest
from dspy.utils.exceptions import LMServerError
from hash_embedder import HashEmbedder
from program_helpers import DAY, make_kb
from scripted import ANSWER, scripted_lm

from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import ConfigError, NoFactsError, RateLimitError, ServerError, WindowError
from pace_dspy.methods import METHODS, make_check, make_program, without_model
from pace_dspy.modules.notebook import NOTHING, Notebook
from pace_dspy.react import ReactProgram
from pace_dspy.retrieval import KbIndex, register_kb
from pace_dspy.types import Fact, PoolFact, Request

REQUEST = "Book dinner on Friday"


def act(tool, thought="look further", **arguments):
    return {"next_thought": thought, "next_tool_name": tool, "next_tool_args": arguments}


def ask(turns, *, kb_id="home", answer=(ANSWER,), program=None, request=REQUEST, **profile):
    lm = scripted_lm({"react": turns, "answerer": list(answer)}, **profile)
    with dspy.context(lm=lm):
        prediction = (program or ReactProgram())(request=request, reference_date=DAY, kb_id=kb_id, persona="Ines")
    return prediction, lm


def prompts(lm, stage):
    return [
        (str(r.system), "\n".join(m.text or "" for m in r.messages)) for name, r in lm.engine.requests if name == stage
    ]


def test_three_tools_then_the_answerer(kb):
    turns = [
        act("search_dense", query="plan 3 with guest 17"),
        act("search_sparse", query="guest 42"),
        act("neighbours", note=1),
        act("finish"),
    ]
    prediction, lm = ask(turns)
    trace = prediction.trace
    dense = [hit.doc_id for hit in trace.hits[1].dense]
    sparse = [hit.doc_id for hit in trace.hits[2].sparse]
    near = [doc_id for doc_id, _ in kb.graph.neighbors(dense[0])][:5]
    assert len(dense) == len(sparse) == 5
    assert [fact.doc_id for fact in trace.pool] == list(dict.fromkeys([*dense, *sparse, *near]))
    new = [doc_id for doc_id in near if doc_id not in dense + sparse]
    assert {fact.hop for fact in trace.pool if fact.doc_id in new} <= {1}
    assert prediction.evidence == tuple(fact.doc_id for fact in trace.pool)[:10]
    assert [view.kind for view in trace.views] == ["original", "counter", "counter"]
    assert (trace.hits[0].dense, trace.hits[0].sparse) == ((), ())
    assert prediction.decision == "non_conflict"
    assert prediction.cited == (prediction.evidence[0],)
    usage = {stage.stage: stage.calls for stage in trace.usage}
    assert usage == {"react": 4, "answerer": 1}
    system, last = prompts(lm, "react")[-1]
    assert system.startswith("Look up, step by step")
    assert "Reply with one JSON object" in system
    assert f"[observation_0]\n[1] {kb.text(dense[0])}"[:40] in last
    assert '{"query": "guest 42"}' in last
    assert "Wednesday 2026-03-18" in last


def test_the_form_of_the_reply_is_a_json_object(kb):
    _, lm = ask([act("finish")])
    (request,) = [request for stage, request in lm.engine.requests if stage == "react"]
    assert request.config.response_format == {"type": "json_object"}


def test_at_most_five_turns_and_ten_facts(kb):
    prediction, lm = ask([act("search_sparse", query=f"guest {n} plan") for n in range(9)])
    assert lm.engine.calls("react") == 5
    assert len(prediction.trace.pool) > 10
    assert len(prediction.evidence) == 10


def test_finishing_at_once_leaves_no_evidence(kb):
    prediction, lm = ask([act("finish")])
    assert (prediction.evidence, prediction.cited, prediction.trace.fallbacks) == ((), (), ())
    assert "no notes were found" in prompts(lm, "answerer")[0][1]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (act("search_dense"), "the call failed"),
        (act("search_dense", query=7), "the call failed: Arg query is invalid"),
        (act("search_dense", query="x", kb_id="other"), "the call failed: Arg kb_id is not in the tool's args."),
        (act("search_sparse", query="  "), "the call failed: the query is empty"),
        (act("neighbours", note=99), "the call failed: there is no note 99; notes seen: none yet"),
        (act("search_sparse", query="zebra"), NOTHING),
    ],
)
def test_a_wrong_call_is_told_to_the_agent_without_our_source(kb, wrong, told):
    _, lm = ask([wrong, act("finish")])
    prompt = prompts(lm, "react")[1][1]
    assert told in prompt
    assert "Traceback" not in prompt
    assert ".py" not in prompt


def test_an_unusable_reply_ends_the_search_with_what_was_seen(kb):
    prediction, _ = ask([act("search_sparse", query="guest 42"), "?", "?"])
    assert len(prediction.evidence) == 5
    assert [fallback.stage for fallback in prediction.trace.fallbacks] == ["react"]
    assert prediction.decision == "non_conflict"


def test_an_unusable_first_reply_falls_back_to_the_request_itself(kb):
    prediction, _ = ask([act("fly", query="x"), act("fly", query="x")])
    assert "next_tool_name" in prediction.trace.fallbacks[0].reason
    assert prediction.evidence == tuple(hit.doc_id for hit in prediction.trace.hits[1].dense)
    assert prediction.trace.views[1].text == REQUEST


def test_a_backend_failure_is_an_error_never_an_answer(kb):
    with pytest.raises(ServerError):
        ask([act("search_sparse", query="guest 42"), LMServerError("down")])


def test_a_failing_embedder_is_an_error_never_an_observation(kb, monkeypatch):
    def refuse(texts):
        raise RateLimitError("slow down")

    monkeypatch.setattr(kb.embedder, "embed_queries", refuse)
    with pytest.raises(RateLimitError, match="slow down"):
        ask([act("search_dense", query="guest"), act("finish")])


def test_without_a_model_and_without_facts(kb):
    with dspy.context(lm=None), pytest.raises(ConfigError, match="no language model is set"):
        ReactProgram()(request=REQUEST, reference_date=DAY, kb_id="home")
    make_kb("empty", n=0)
    with pytest.raises(NoFactsError):
        ask([], kb_id="empty")


def test_old_turns_leave_a_small_window_and_are_recorded(kb):
    turns = [act("search_sparse", query=f"guest {n} plan {n}", thought="w" * 600) for n in range(5)]
    prediction, lm = ask(turns, window=2200)
    trims = [trim for trim in prediction.trace.trims if trim.stage == "react"]
    assert trims
    assert all(trim.shown < trim.offered for trim in trims)
    assert "thought_0" not in prompts(lm, "react")[-1][1]
    assert "thought_3" in prompts(lm, "react")[-1][1]
    with pytest.raises(WindowError, match="no room for one turn of the search"):
        ask(turns, window=700)


def test_notes_are_short_and_of_one_knowledge_base():
    mine = [Fact(f"m{n}", f"Ines {'very ' * 200}long note {n}") for n in range(3)]
    kb = register_kb(KbIndex.build("mine", mine, HashEmbedder()))
    make_kb("other", owner="Stranger")
    notebook = Notebook(kb)
    lines = notebook.dense("Ines long note").splitlines()
    assert [len(line) for line in lines] == [len("[1] ") + 303] * 3
    assert notebook.seen == tuple(PoolFact(fact.doc_id, 0) for fact in notebook.seen)
    prediction, lm = ask([act("search_dense", query="Stranger plan"), act("finish")], kb_id="mine")
    assert all(doc_id.startswith("m") for doc_id in prediction.evidence)
    assert "Stranger notes" not in str(lm.engine.requests)


def test_copies_and_state_hold_no_index(kb):
    program = copy.deepcopy(ReactProgram())
    prediction, _ = ask([act("search_dense", query="guest"), act("finish")], program=program)
    assert len(prediction.evidence) == 5
    assert [name for name, _ in program.named_predictors()] == ["searcher.react", "answerer.predict"]
    assert "guest" not in str(program.dump_state())


def test_it_is_a_method_that_needs_a_model(kb):
    assert "react" in METHODS
    check = make_check(make_program("react", PaceMakerConfig()))
    request = Request("home", "q000", REQUEST, DAY, label="conflict", gold_doc_ids=("home-1",))
    with dspy.context(lm=scripted_lm({"react": [act("finish")], "answerer": [ANSWER]})):
        assert check(request, "home", "Ines").decision == "non_conflict"
    with pytest.raises(ConfigError, match="--backend none cannot run method react"):
        without_model("react", PaceMakerConfig())
