"""Ours beyond the paper: rules for agents, channels, PageRank, second look, derived notes; configs lite and plus."""

import pytest
from hash_embedder import HashEmbedder
from program_helpers import ask
from scripted import ANSWER, GOOD, prompt_of

from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import ConfigError
from pace_dspy.retrieval import KbIndex, register_kb
from pace_dspy.types import Fact

PLUS = PaceMakerConfig.load("plus")
LITE = PaceMakerConfig.load("lite")

STORY = [
    "Ines has dinner with Maya every Friday at the quay.",
    "Maya has kept a vegan kitchen since the spring.",
    "Hearth and Bone hangs its menu beside the door.",
    "The Quarrymen's week at Hearth and Bone lasts until 28 March 2026.",
    "Quarrymen eat one fixed plate of venison and nothing else.",
    "Zelda tunes the harpsichord on alternate Mondays.",
]
FILLER = [f"Ines bought item number {n} in shop {n % 9} for {n} euros." for n in range(80)]


def story_kb(kb_id="home", texts=None):
    facts = [Fact(f"s{n}", text) for n, text in enumerate([*STORY, *FILLER] if texts is None else texts)]
    return register_kb(KbIndex.build(kb_id, facts, HashEmbedder()), replace=True)


def look(missing, useful=(1,)):
    return {"useful": list(useful), "missing": list(missing)}


def plus(rounds=1, **retrieval):
    raw = PLUS.model_dump()
    raw["agents"]["rounds"] = rounds
    raw["retrieval"] |= {"pool": 8, "top_k_per_view": 3, **retrieval}
    return PaceMakerConfig.parse(raw)


REQUEST = "Book Hearth and Bone for Maya and me this Friday at 7 PM"


def test_plus_asks_five_times_as_the_paper_does_and_in_its_own_order():
    story_kb()
    prediction, lm = ask({**GOOD, "second_look": [look(["harpsichord tuning"])]}, config=PLUS, request=REQUEST)
    assert [stage for stage, _ in lm.engine.requests] == [
        "planner",
        "views",
        "second_look",
        "post_filter",
        "answerer",
    ]
    assert sum(usage.calls for usage in prediction.trace.usage) == 5


def test_the_second_look_finds_the_fact_it_asks_for():
    story_kb()
    missing = "Zelda tunes the harpsichord on alternate Mondays."
    prediction, _ = ask({**GOOD, "second_look": [look([missing])]}, config=plus(), request=REQUEST)
    trace = prediction.trace
    assert "s5" not in {fact.doc_id for fact in trace.pool}
    assert "s5" in {fact.doc_id for fact in trace.final_pool}
    assert [one.follow_ups for one in trace.looks] == [(missing,)]
    assert trace.looks[0].hits[0].dense[0].doc_id == "s5"
    used = next(usage for usage in trace.usage if usage.stage == "second_look")
    assert (used.calls, used.prompt_tokens, used.completion_tokens) == (1, 100, 10)


@pytest.mark.parametrize(
    "reply",
    [look([]), look(["", "  "]), look([REQUEST]), look([REQUEST.upper() + "!"]), look(["other plans on Friday"])],
)
def test_an_empty_or_repeating_look_costs_the_call_and_nothing_else(reply):
    story_kb()
    prediction, lm = ask({**GOOD, "second_look": [reply]}, config=plus(rounds=3), request=REQUEST)
    trace = prediction.trace
    assert lm.engine.calls("second_look") == 1
    assert trace.final_pool == trace.pool
    assert [one.pool for one in trace.looks] == [()]
    assert trace.fallbacks == ()


def test_rounds_are_bounded_and_a_repeated_question_ends_them():
    story_kb()
    replies = [look([f"question number {n}"]) for n in range(9)]
    _, lm = ask({**GOOD, "second_look": list(replies)}, config=plus(rounds=2), request=REQUEST)
    assert lm.engine.calls("second_look") == 2
    again = [look(["who is Zelda"]), look(["Who is Zelda?"]), look(["new"])]
    prediction, lm = ask({**GOOD, "second_look": again}, config=plus(rounds=3), request=REQUEST)
    assert lm.engine.calls("second_look") == 2
    assert [one.follow_ups for one in prediction.trace.looks] == [("who is Zelda",), ()]


def test_an_unusable_look_is_a_recorded_fallback_with_the_first_pool():
    story_kb()
    prediction, _ = ask({**GOOD, "second_look": ["prose", "prose"]}, config=plus(), request=REQUEST)
    assert [fallback.stage for fallback in prediction.trace.fallbacks] == ["second_look"]
    assert prediction.trace.final_pool == prediction.trace.pool


def test_lite_asks_once_and_shows_its_reasons():
    story_kb()
    prediction, lm = ask({"answerer": GOOD["answerer"]}, config=LITE, request=REQUEST)
    trace = prediction.trace
    assert [stage for stage, _ in lm.engine.requests] == ["answerer"]
    assert [cue.direction for cue in trace.cues][:2] == ["time", "people"]
    assert [view.kind for view in trace.views] == ["original"]
    assert {channel.channel for channel in trace.channels} == {"time", "people"}
    assert len(prediction.evidence) == 10
    assert {fact.via.split()[0] for fact in trace.pool} <= {"seed", "neighbour", "shares"}
    assert any(fact.via.startswith("shares") for fact in trace.pool)


def test_the_time_channel_finds_what_no_word_shares():
    story_kb(texts=["The boiler man comes on 20 March 2026 and needs the whole evening.", *FILLER])
    request = "Get two cinema tickets for this Friday at 7 PM"
    prediction, _ = ask({"answerer": GOOD["answerer"]}, config=LITE, request=request)
    channel = next(channel for channel in prediction.trace.channels if channel.channel == "time")
    assert channel.doc_ids == ("s0",)
    assert "s0" in prediction.evidence


def test_explicit_dates_get_their_weekday_in_prompts_of_lite_only():
    story_kb()
    for config, shown in ((LITE, True), (PaceMakerConfig(), False)):
        script = {**GOOD, "post_filter": lambda _: {"selected": [1]}}
        prediction, lm = ask(script, config=config, request="Quarrymen's week at Hearth and Bone lasts until when")
        prompt = prompt_of(lm.engine.requests[-1][1])
        if "28 March 2026" in prompt:
            assert ("28 March 2026 (Sat)" in prompt) is shown, prompt
        assert prediction.decision == "non_conflict"


def test_derived_notes_reach_the_answerer_marked_and_cite_their_facts():
    texts = [
        "Ines sits her licence exam on Friday 20 March 2026 from 18:00 to 21:00 in Brack.",
        "Ines's licence exam cannot be moved and she must attend.",
        *FILLER,
    ]
    story_kb(texts=texts)
    prediction, lm = ask(
        {"answerer": GOOD["answerer"]},
        config=LITE,
        request="Book the licence exam dinner this Friday from 7 PM to 9 PM",
    )
    prompt = prompt_of(lm.engine.requests[-1][1])
    for note in prediction.trace.notes:
        assert set(note.doc_ids) <= set(prediction.evidence)
    assert prompt.count("(derived from [") == len(prediction.trace.notes)


def test_citing_a_derived_line_is_no_citation():
    story_kb()
    prediction, _ = ask({"answerer": [{**ANSWER, "cited": [1, 11, 12]}]}, config=LITE, request=REQUEST)
    assert prediction.cited == (prediction.evidence[0],)


@pytest.mark.parametrize("request_text", ["Do it", "???", "ok ok ok", "31 February is fine", "Call them next Friday"])
def test_a_request_without_date_person_or_place_has_fewer_cues_and_no_failure(request_text):
    story_kb()
    prediction, _ = ask({"answerer": GOOD["answerer"]}, config=LITE, request=request_text)
    assert prediction.decision == "non_conflict"
    assert len(prediction.trace.cues) <= 3


@pytest.mark.parametrize(
    "texts",
    [
        ["One fact alone."],
        ["First fact.", "Second thing.", "Third item."],
        ["The same fact again and again."] * 30,
        [f"w{n}a w{n}b w{n}c w{n}d" for n in range(30)],
    ],
)
@pytest.mark.parametrize("config", [LITE, PLUS], ids=["lite", "plus"])
def test_small_identical_and_unconnected_kbs(texts, config):
    story_kb(texts=texts)
    script = {**GOOD, "second_look": lambda _: look(["more about it"])}
    prediction, _ = ask(script, config=config, request="Book the fact for tomorrow")
    assert prediction.decision == "non_conflict"
    assert len(prediction.evidence) == len(set(prediction.evidence)) <= 10


def test_unknown_values_name_what_is_allowed():
    with pytest.raises(ConfigError, match=r"retrieval\.walk: Input should be 'bfs' or 'ppr'"):
        PaceMakerConfig.parse({"retrieval": {"walk": "dfs"}})
    with pytest.raises(ConfigError, match=r"agents\.planner: Input should be 'model', 'rules' or 'off'"):
        PaceMakerConfig.parse({"agents": {"planner": "magic"}})
