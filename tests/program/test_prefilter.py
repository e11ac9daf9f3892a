"""The prefilter (ours): which facts of the pool the post-hop filter reads, and what that costs in the funnel."""

import datetime as dt

import pytest
from program_helpers import ask
from run_folder import make_run
from scripted import GOOD, prompt_of

from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import ConfigError
from pace_dspy.evaluation.estimate import pool_size
from pace_dspy.evaluation.funnel import funnel_of
from pace_dspy.evaluation.provenance import RunManifest, differences
from pace_dspy.evaluation.store import RunStore, read_manifest
from pace_dspy.steps import prefilter
from pace_dspy.types import FusedHit, Look, PoolFact, Trace

DAY = dt.date(2026, 3, 18)


def trace(pool, fused=(), **more):
    return Trace("kb", DAY, fused=tuple(FusedHit(doc_id, score) for doc_id, score in fused), pool=tuple(pool), **more)


# seeds a and c; the walk reaches e (fused, score 0.3), f (hop 1), g (hop 2), d (hop 2, fused, 0.4)
BREADTH = trace(
    [PoolFact(*pair) for pair in [("a", 0), ("c", 0), ("e", 1), ("f", 1), ("g", 2), ("d", 2)]],
    fused=[("a", 0.9), ("d", 0.4), ("e", 0.3), ("c", 0.2)],
)


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        (0, ""),  # off
        (1, "a"),
        (2, "ac"),  # a seed was chosen by an agent: before d and e, whatever their scores
        (3, "acd"),
        (4, "aced"),  # the pool's own order
        (5, "acefd"),  # f before g: hop 1 before hop 2
        (6, "acefgd"),
        (99, "acefgd"),
    ],
)
def test_a_breadth_first_pool_is_cut_by_seeds_score_and_hop(keep, kept):
    assert "".join(prefilter(BREADTH, keep).prefiltered) == kept


def test_a_pagerank_pool_is_cut_as_it_is_ranked():
    ranked = trace([PoolFact("x", 1, 0.5), PoolFact("a", 0, 0.4), PoolFact("y", 1, 0.3)], fused=[("a", 0.9)])
    assert prefilter(ranked, 2).prefiltered == ("x", "a")


def test_the_last_pool_is_cut():
    looked = trace(BREADTH.pool, looks=(Look((), ("q",), (), (PoolFact("z", 0), PoolFact("a", 1))), Look(("a",))))
    assert prefilter(looked, 1).prefiltered == ("z",)
    assert [fact.doc_id for fact in prefilter(looked, 1).offered] == ["z"]
    assert [fact.doc_id for fact in looked.offered] == ["z", "a"]


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


def test_the_funnel_names_what_the_prefilter_lost():
    cut = prefilter(BREADTH, 4).to_dict() | {"seeds": ["a", "c"], "evidence": ["a"]}  # a c e d, then a
    funnel = funnel_of(cut, "adg", None)
    assert {fate.doc_id: fate.lost_at for fate in funnel.fates} == {
        "a": "in_evidence",
        "d": "post_filter",
        "g": "prefilter",
    }
    stage = funnel.stage("prefilter")
    assert (stage.n_offered, stage.n_kept, stage.recall) == (3, 2, pytest.approx(2 / 3))
    assert funnel_of(BREADTH, "adg", None).stage("prefilter") is None


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
