"""The prefilter (ours): which facts of the pool the post-hop filter reads, and what that costs in the funnel."""

import datetime as dt
from dataclasses import replace

import numpy as np
import pytest
from hash_embedder import HashEmbedder
from program_helpers import ask
from run_folder import make_run
from scripted import GOOD, prompt_of

from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.estimate import pool_size
from pace_dspy.evaluation.funnel import funnel_of
from pace_dspy.evaluation.provenance import RunManifest, differences
from pace_dspy.evaluation.store import RunStore, read_manifest
from pace_dspy.kb_context import context_of
from pace_dspy.retrieval import KbIndex
from pace_dspy.steps import prefilter
from pace_dspy.types import Fact, FusedHit, Look, PoolFact, Task, Trace

DAY = dt.date(2026, 3, 18)


def trace(pool, fused=(), **more):
    return Trace("kb", DAY, fused=tuple(FusedHit(doc_id, score) for doc_id, score in fused), pool=tuple(pool), **more)


# f0 is the only seed; f1 to f9 say nothing about it, f10 and f11 share its rare name, f11 at a farther hop
KB_TEXTS = [
    "Dinner with Quillon at the quay.",
    *[f"Chair number {n} stands in the hall." for n in range(9)],
    "Quillon eats no venison.",
    "Quillon sails on Friday.",
]
TASK = Task("Dinner with Quillon", DAY, "story")


@pytest.fixture
def story():
    return KbIndex.build("story", [Fact(f"f{n}", text) for n, text in enumerate(KB_TEXTS)], HashEmbedder())


def breadth(order="0 1 2 3 4 5 6 7 8 10 11"):
    ids = [f"f{n}" for n in order.split()]
    hops = [0, *[1] * (len(ids) - 2), 2]
    pool = [PoolFact(doc_id, hop) for doc_id, hop in zip(ids, hops, strict=True)]
    return trace(pool, fused=[("f0", 0.9), ("f1", 0.1)], seeds=("f0",))


@pytest.mark.parametrize(("keep", "kept"), [(0, ""), (1, "f0"), (3, "f0 f10 f11"), (11, None), (99, None)])
def test_what_the_seeds_are_linked_to_is_kept_whatever_its_hop(story, keep, kept):
    reached = breadth()
    found = prefilter(TASK, story, reached, keep).prefiltered
    assert found == (tuple(kept.split()) if kept is not None else tuple(fact.doc_id for fact in reached.pool))


def test_the_pool_keeps_its_order(story):
    assert prefilter(TASK, story, breadth("11 5 10 4 0"), 3).prefiltered == ("f11", "f10", "f0")


def test_the_rank_is_that_of_a_pagerank_walk(story):
    reached, graph = breadth(), context_of(story, DAY, None).graph("hybrid", story, 0.2)
    prior = np.exp(0.4 * context_of(story, DAY, None).strengths).astype(np.float32)
    walked = graph.walk({0: 0.9, 1: 0.1}, 12, prior=prior, damping=0.5, second=0.5)
    in_pool = [f"f{fact.position}" for fact in walked if f"f{fact.position}" != "f9"]
    for keep in range(1, 8):
        assert set(prefilter(TASK, story, reached, keep).prefiltered) == set(in_pool[:keep])


def test_a_pagerank_pool_is_cut_as_it_is_ranked(story):
    ranked = trace([PoolFact("x", 1, 0.5), PoolFact("a", 0, 0.4), PoolFact("y", 1, 0.3)], fused=[("a", 0.9)])
    assert prefilter(TASK, story, ranked, 2).prefiltered == ("x", "a")


def test_the_last_pool_is_cut(story):
    looked = breadth()
    after = tuple(PoolFact(f"f{n}", 0) for n in (3, 11, 0))
    looked = replace(looked, looks=(Look((), ("q",), (), after), Look(("f0",))))
    cut = prefilter(TASK, story, looked, 2)
    assert cut.prefiltered == ("f11", "f0")
    assert [fact.doc_id for fact in cut.offered] == ["f11", "f0"]
    assert [fact.doc_id for fact in looked.offered] == ["f3", "f11", "f0"]


def shown(lm, stage):
    (prompt,) = [prompt_of(request) for name, request in lm.engine.requests if name == stage]
    return prompt


def test_the_filter_reads_what_is_kept_and_numbers_mean_that_list(kb):
    config = PaceMakerConfig.parse({"agents": {"post_hop_prefilter": 12}})
    script = {**GOOD, "pre_filter": lambda _: {"keep": [3, 5, 7]}, "post_filter": lambda _: {"selected": [12, 1]}}
    prediction, lm = ask(script, config=config)
    kept = prediction.trace.prefiltered
    assert len(prediction.trace.pool) > 12
    assert prediction.evidence == (kept[11], kept[0])
    prompt = shown(lm, "post_filter")
    assert [prompt.count(f"\n[{number}] ") for number in (12, 13)] == [1, 0]
    assert all(kb.text(doc_id) in prompt for doc_id in kept)


def test_off_is_the_paper(kb):
    off, lm = ask(GOOD)
    full = PaceMakerConfig.parse({"agents": {"post_hop_prefilter": len(off.trace.pool)}})
    same, again = ask(GOOD, config=full)
    assert (off.trace.prefiltered, len(same.trace.prefiltered)) == ((), len(off.trace.pool))
    assert shown(lm, "post_filter") == shown(again, "post_filter")
    assert same.evidence == off.evidence
    with pytest.raises(ConfigError, match=r"agents\.post_hop_prefilter"):
        PaceMakerConfig.parse({"agents": {"post_hop_prefilter": -1}})


def test_the_funnel_names_what_the_prefilter_lost(story):
    cut = prefilter(TASK, story, breadth(), 3).to_dict() | {"evidence": ["f0"]}  # f0 f10 f11, then f0
    funnel = funnel_of(cut, ["f0", "f10", "f5"], None)
    assert {fate.doc_id: fate.lost_at for fate in funnel.fates} == {
        "f0": "in_evidence",
        "f10": "post_filter",
        "f5": "prefilter",
    }
    stage = funnel.stage("prefilter")
    assert (stage.n_offered, stage.n_kept, stage.recall) == (3, 2, pytest.approx(2 / 3))
    assert funnel_of(breadth(), ["f0"], None).stage("prefilter") is None


def test_a_run_of_before_the_setting_is_continued(tmp_path):
    make_run(tmp_path / "run", []).close()
    stored = read_manifest(tmp_path / "run")
    config = PaceMakerConfig().model_dump(mode="json")
    older = {**config, "agents": {k: v for k, v in config["agents"].items() if k != "post_hop_prefilter"}}
    old, same = (stored.model_copy(update={"config": part}) for part in (older, config))
    (tmp_path / "run" / "manifest.json").write_text(old.model_dump_json())
    RunStore.open(tmp_path / "run", same).close()
    other = {**config, "agents": {**config["agents"], "post_hop_prefilter": 40}}
    with pytest.raises(ConfigError, match=r"another run: config\.agents\.post_hop_prefilter: 0 -> 40"):
        RunStore.open(tmp_path / "run", stored.model_copy(update={"config": other}))


def test_a_config_of_another_version_is_compared_as_it_is():
    fields = {"method": "m", "dataset": "d", "dataset_hash": "h", "backends": {}, "embedder": "e", "seed": 0}
    gone, now = RunManifest(config={"name": "x", "gone": 1}, **fields), RunManifest(config={"name": "x"}, **fields)
    assert any(line.startswith("config.gone: 1 -> None") for line in differences(gone, now))
    assert differences(gone, gone) == []


def test_the_estimate_knows_the_cut():
    assert pool_size(PaceMakerConfig.parse({"agents": {"post_hop_prefilter": 40}}), 2000) == 40
    assert pool_size(PaceMakerConfig(), 2000) == 85
