import datetime as dt
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pace_dspy.evaluation.funnel import FATES, STAGES, FactFate, StageSpec, funnel_of
from pace_dspy.evaluation.funnel_report import funnel_metrics, funnel_report
from pace_dspy.types import FusedHit, Hit, PoolFact, Trace, Trim, View, ViewHits


def hits(ids):
    return tuple(Hit(doc_id, 1.0) for doc_id in ids)


def make_trace(views, fused="", seeds="", pool=(), evidence="", trims=()):
    """Facts are single letters: views are (dense, sparse) pairs of words, pool is {letter: hop}."""
    return Trace(
        "kb",
        dt.date(2026, 3, 2),
        views=tuple(View("counter" if i else "original", f"view {i}") for i in range(len(views))),
        hits=tuple(ViewHits(hits(dense), hits(sparse)) for dense, sparse in views),
        fused=tuple(FusedHit(doc_id, 0.1) for doc_id in fused),
        seeds=tuple(seeds),
        pool=tuple(PoolFact(doc_id, hop) for doc_id, hop in dict(pool).items()),
        evidence=tuple(evidence),
        trims=tuple(trims),
    )


# found by views: a b c x d (view 0), e f a (view 1); fusion keeps a b e c x and cuts d and f;
# seeds a b x (e and c dropped); the walk reaches e and g (hop 1) and f (hop 2), never c, d, i; b and f are dropped
# by the post-hop filter; a and g are cited, e is not. x is a distractor.
TRACE = make_trace(
    [("abcx", "bd"), ("ef", "a")],
    fused="abecx",
    seeds="abx",
    pool={"a": 0, "b": 0, "x": 0, "e": 1, "g": 1, "y": 1, "f": 2},
    evidence="aegx",
)
GOLD = list("abcdefgi")


def test_every_fate_by_hand():
    funnel = funnel_of(TRACE, GOLD, ["a", "g", "x"])
    assert funnel.fates == (
        FactFate("a", "cited", 0, (0, 1)),
        FactFate("b", "post_filter", 0, (0,)),
        FactFate("c", "pre_filter", None, (0,)),  # dropped from the fused list and not reached again
        FactFate("d", "fusion", None, (0,)),  # found by BM25 of view 0, cut, not reached
        FactFate("e", "not_cited", 1, (1,), "pre_filter", "pool"),  # dropped from the fused list, reached again
        FactFate("f", "post_filter", 2, (1,), "fusion", "pool"),  # cut by fusion, reached, then dropped
        FactFate("g", "cited", 1, (), "no_view", "pool"),  # no view found it, the walk did
        FactFate("i", "no_view", None, ()),
    )
    assert [fact.doc_id for fact in funnel.at("post_filter")] == ["b", "f"]


def test_stage_recalls_by_hand():
    funnel = funnel_of(TRACE, GOLD, ["a", "g", "x"])
    counts = {count.stage: (count.n_offered, count.n_kept, count.n_new) for count in funnel.stages}
    assert counts == {
        "views": (8, 6, 0),  # a b c d e f
        "fused": (6, 4, 0),  # a b c e
        "seeds": (4, 2, 0),  # a b
        "pool": (2, 2, 3),  # a b, and anew e f g
        "evidence": (5, 3, 0),  # a e g
        "cited": (3, 2, 0),  # a g
    }
    assert [count.recall for count in funnel.stages] == [6 / 8, 4 / 8, 2 / 8, 5 / 8, 3 / 8, 2 / 8]
    assert funnel.stage("seeds").keep_rate == 0.5
    walk = funnel.stage("pool")
    assert (walk.n_missed, walk.recovery_rate) == (3, 0.5)  # c d i were not reached: 3 of the 6 not among the seeds


def test_a_dictionary_read_back_from_json_gives_the_same():
    stored = json.loads(json.dumps(TRACE.to_dict()))
    assert funnel_of(stored, GOLD, ["a", "g"]) == funnel_of(TRACE, GOLD, ["a", "g"])


def test_walk_is_the_loss_where_the_pool_lacks_what_it_was_given():
    # A walk that keeps its best facts only: seed b is not in the pool.
    trace = make_trace([("abc", "")], fused="abc", seeds="ab", pool={"a": 0, "z": 1}, evidence="a")
    assert [fact.lost_at for fact in funnel_of(trace, "abc", ["a"]).fates] == ["cited", "walk", "pre_filter"]


def test_without_hops_the_walk_recovers_nothing_and_loses_nothing():
    trace = make_trace([("abc", "")], fused="ab", seeds="a", pool={"a": 0}, evidence="a")
    funnel = funnel_of(trace, "abcd", ["a"])
    assert [fact.lost_at for fact in funnel.fates] == ["cited", "pre_filter", "fusion", "no_view"]
    assert funnel.stage("pool").n_new == 0


@pytest.mark.parametrize(
    ("trace", "cited", "expected"),
    [
        # full-kb and oracle record no stage: only the final cut and the citing remain
        (None, ["a"], {"a": "cited", "b": "not_cited", "c": "post_filter"}),
        # an LLM-free baseline decides nothing: what is in the evidence stays there
        (make_trace([("ab", "c")]), None, {"a": "in_evidence", "b": "in_evidence", "c": "post_filter", "d": "no_view"}),
        # hybrid: views and fusion, then the final cut
        (make_trace([("abc", "d")], fused="abc"), None, {"a": "in_evidence", "c": "post_filter", "d": "fusion"}),
        # views that ran and found nothing are a stage; no views at all are not
        (make_trace([("", "")]), None, {"c": "no_view"}),
    ],
)
def test_baselines_skip_the_stages_they_lack(trace, cited, expected):
    funnel = funnel_of(trace, expected, cited, evidence=["a", "b"])
    assert {fact.doc_id: fact.lost_at for fact in funnel.fates} == expected
    assert funnel.stage("seeds") is None


def test_a_fact_that_only_the_evidence_has_is_recovered_there():
    # An agent with tools may read a fact that none of the recorded searches returned.
    funnel = funnel_of(make_trace([("a", "")]), ["a", "b"], ["b"], evidence=["a", "b"])
    assert funnel.fates[1] == FactFate("b", "cited", None, (), "no_view", "evidence")


def test_a_fact_that_the_prompt_had_no_room_for_is_marked():
    # Pool of seven, the post-hop filter was shown the first six: f is the seventh, b is the second.
    # Evidence of four, the answerer was shown one: e is the second.
    trace = replace(TRACE, trims=(Trim("post_filter", 7, 6), Trim("answerer", 4, 1)))
    fates = {fact.doc_id: fact for fact in funnel_of(trace, GOLD, ["a"]).fates}
    assert fates["f"].trimmed
    assert not fates["b"].trimmed
    assert (fates["e"].lost_at, fates["e"].trimmed) == ("not_cited", True)
    assert not fates["i"].trimmed


def test_a_stage_added_between_pool_and_evidence():
    second = StageSpec("second_look", "second_look", lambda trace: trace.get("second_look"))
    specs = (*STAGES[:4], second, *STAGES[4:])
    raw = TRACE.to_dict() | {"second_look": ["a", "e", "f", "g", "i"]}  # loses b, finds i
    fates = {fact.doc_id: fact for fact in funnel_of(raw, GOLD, ["a"], specs=specs).fates}
    assert fates["b"].lost_at == "second_look"
    assert (fates["i"].lost_at, fates["i"].recovered_from, fates["i"].recovered_by) == (
        "post_filter",
        "no_view",
        "second_look",
    )


def make_row(query_id, gold, trace=TRACE, cited=("a", "g"), **fields):
    row = {
        "case_id": "c1",
        "query_id": query_id,
        "label": "conflict",
        "situation_type": "state",
        "gold_doc_ids": list(gold),
        "evidence": list(trace.evidence),
        "cited": list(cited),
        "decision": "conflict",
        "trace": trace.to_dict(),
        "error": None,
    }
    return row | fields


ROWS = [
    make_row("q1", "abi"),  # cited, post_filter, no_view
    make_row("q2", "ge", label="non_conflict"),  # cited (from no_view), not_cited (from pre_filter)
    make_row("q3", ""),
    make_row("q4", "abc", error={"kind": "ServerError", "message": "500"}),
    make_row("q5", "a", cited=(), decision=None),  # the answerer's reply stayed unusable
]


def test_aggregate_by_hand():
    funnel = funnel_metrics(ROWS)
    assert (funnel.n, funnel.n_failed, funnel.n_no_gold, funnel.n_gold) == (3, 1, 1, 6)
    assert funnel.reasons == {"ServerError": 1}
    assert {fate: count for fate, count in funnel.fates.items() if count} == {
        "no_view": 1,
        "post_filter": 1,
        "not_cited": 1,
        "in_evidence": 1,
        "cited": 2,
    }
    assert tuple(funnel.fates) == FATES
    assert funnel.recovered == {"no_view": 1, "pre_filter": 1}
    assert funnel.shares["cited"] == pytest.approx(2 / 6)
    recalls = {count.stage: count.recall for count in funnel.stages}
    # evidence: a, g, e, a of six; cited: only the requests with a decision, 2 of their five facts
    assert recalls["evidence"] == pytest.approx(4 / 6)
    assert recalls["cited"] == pytest.approx(2 / 5)
    assert json.loads(json.dumps(funnel.to_dict()))["stages"][0]["recall"] == pytest.approx(4 / 6)


def test_report_by_label_and_type():
    report = funnel_report(ROWS)
    assert {label: funnel.n_gold for label, funnel in report.by_label.items()} == {"conflict": 4, "non_conflict": 2}
    assert report.by_type["state"] == report.overall


def test_an_empty_list_of_a_stage_other_requests_have_is_a_loss():
    empty = make_trace([("", "")], evidence="")
    funnel = funnel_metrics([make_row("q1", "a"), make_row("q2", "b", trace=empty, cited=())])
    assert {count.stage: count.n_gold for count in funnel.stages}["pool"] == 2
    assert funnel.fates["no_view"] == 1


def test_a_look_that_asks_for_nothing_passes_the_pool_on():
    """Request 1 walks again and keeps its fact; in request 2 the look is content and the last filter drops the fact."""
    pool = [{"doc_id": "a", "hop": 0}, {"doc_id": "b", "hop": 0}]
    traces = [{"pool": pool, "looks": [{"pool": after}]} for after in (pool, [])]
    rows = [make_row("q1", "a", cited=(), decision=None), make_row("q2", "a", cited=(), decision=None)]
    rows = [row | {"trace": raw, "evidence": list(ev)} for row, raw, ev in zip(rows, traces, "ab", strict=True)]
    funnel = funnel_metrics(rows)
    assert {fate: count for fate, count in funnel.fates.items() if count} == {"post_filter": 1, "in_evidence": 1}
    assert {count.stage: count.recall for count in funnel.stages}["second_look"] == 1.0


FACTS = list("abcdefgh")
SUBSET = st.lists(st.sampled_from(FACTS), unique=True).map("".join)


@given(
    views=st.lists(st.tuples(SUBSET, SUBSET), max_size=3),
    lists=st.tuples(SUBSET, SUBSET, SUBSET, SUBSET),
    gold=SUBSET,
    cited=st.none() | SUBSET,
)
def test_invariants(views, lists, gold, cited):
    fused, seeds, pool, evidence = lists
    trace = make_trace(views, fused, seeds, dict.fromkeys(pool, 1), evidence)
    funnel = funnel_of(trace, gold, None if cited is None else list(cited))
    assert [fact.doc_id for fact in funnel.fates] == list(gold)  # one fate each: a partition of the gold
    assert all(fact.lost_at in FATES for fact in funnel.fates)
    final = "in_evidence" if cited is None else "cited"
    kept = evidence if cited is None else cited
    assert {fact.doc_id for fact in funnel.at(final)} == set(gold) & set(kept)
    previous = len(gold)
    for count in funnel.stages:
        assert count.n_gold == len(gold)
        assert count.n_offered == previous
        assert 0 <= count.n_kept <= count.n_offered
        assert count.n_missed >= 0
        previous = count.n_kept + count.n_new
    assert previous == len(funnel.at(final))
    # what is missing at the end is what was lost and not recovered
    assert sum(fact.lost_at != final for fact in funnel.fates) == len(gold) - previous
