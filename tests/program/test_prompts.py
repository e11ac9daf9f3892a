"""Prompts are prefix-stable: whatever is fixed comes first and is the same, byte for byte, in every request."""

import datetime as dt

import dspy
import pytest
from program_helpers import make_kb
from scripted import GOOD, scripted_lm

from pace_dspy.calendar import today_line
from pace_dspy.config import PaceMakerConfig
from pace_dspy.modules.judge import Judge
from pace_dspy.program import PaceMakerProgram

ASKED = [
    ("home", "Ines", "Book dinner on Friday", dt.date(2026, 3, 18)),
    ("away", "Bo", "Cancel the swim with guest 12 on 4 May", dt.date(2027, 5, 1)),
]
SCRIPT = {
    **GOOD,
    "pre_filter": lambda prompt: {"keep": [1, 2, 3, 4] if "Ines" in prompt else [5, 4, 3]},
    "second_look": lambda prompt: {"useful": [2], "missing": ["guests of plan 3"]},
}


def prompts_of(config, prepare=lambda program: None):
    """Stage -> the requests of both users, in order of ASKED."""
    program = PaceMakerProgram(config)
    prepare(program)
    lm = scripted_lm(SCRIPT, window=32_000)
    for kb_id, owner, request, day in ASKED:
        make_kb(kb_id, owner=owner)
        with dspy.context(lm=lm):
            program(request=request, reference_date=day, kb_id=kb_id, persona=owner)
    stages = {}
    for stage, request in lm.engine.requests:
        stages.setdefault(stage, []).append(request)
    return stages


def texts(request):
    return [str(request.system), *(message.text for message in request.messages)]


@pytest.mark.parametrize(("config", "stages"), [("paper", 5), ("plus", 5), ("lite", 1)])
def test_the_fixed_part_comes_first_and_is_the_same_in_every_request(config, stages):
    found = prompts_of(PaceMakerConfig.load(config))
    assert len(found) == stages
    for stage, (one, two) in found.items():
        assert str(one.system) == str(two.system), stage
        assert one.config.response_format == two.config.response_format, stage  # some servers put it into the prompt
        for (_, owner, request, day), own in zip(ASKED, (one, two), strict=True):
            (user,) = own.messages
            assert request in user.text
            assert today_line(day) in user.text
            for variable in (owner, request, str(day.year), "guest"):
                assert variable not in str(own.system), (stage, variable)


@pytest.mark.parametrize("config", ["paper", "plus"])
def test_facts_come_last(config):
    last = {"planner": "today", "views": "cues", "answerer": "evidence"}
    for stage, requests in prompts_of(PaceMakerConfig.load(config)).items():
        for request in requests:
            heads = [line for line in request.messages[0].text.splitlines() if line[:1] == "[" and line[-1:] == "]"]
            assert heads[-1] == f"[{last.get(stage, 'candidates')}]"


def test_demos_stand_between_the_instructions_and_the_inputs():
    demo = dspy.Example(request="Buy a kite", today="Monday", candidates="[1] Bo has two kites.", selected=[1])

    def compiled(program):
        program.post_filter.predict.demos = [demo]

    one, two = prompts_of(PaceMakerConfig(), compiled)["post_filter"]
    assert len(texts(one)) == 4  # instructions, the demo and its reply, the inputs
    assert texts(one)[:3] == texts(two)[:3]
    assert "Buy a kite" in texts(one)[1]
    assert texts(one)[3] != texts(two)[3]


def test_the_judge_too():
    lm = scripted_lm({"judge": lambda _: {"reason": "agrees", "verdict": "PASS"}})
    with dspy.context(lm=lm):
        for _, _, request, day in ASKED:
            Judge()(request, day, "conflict", f"{request}: no", f"no, as of {day}")
    (_, one), (_, two) = lm.engine.requests
    assert (str(one.system), one.config.response_format) == (str(two.system), two.config.response_format)
    assert all(request not in str(one.system) for _, _, request, _ in ASKED)
