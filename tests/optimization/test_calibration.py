"""Probabilities of a choice from token log-probabilities, and the threshold fitted on them."""

import json
import math
import re

import dspy
import pytest
from dspy.lm15 import Message, Response, TokenLogprob, TopLogprob, Usage
from known_skill import answerer, compilation, hinted, script
from scripted import ScriptedEngine, prompt_of, scripted_lm

from pace_dspy.artifacts import fingerprint, load_program, save_program
from pace_dspy.backends.logprobs import choice_probabilities
from pace_dspy.config import PaceMakerConfig
from pace_dspy.errors import ConfigError
from pace_dspy.optimization import Measured, fit_threshold, run
from pace_dspy.optimization.snapshot import snapshot
from pace_dspy.program import PaceMakerProgram

LABELS = ("conflict", "non_conflict")


def tokens(*parts, top=None):
    """Tokens of a reply; ``top`` gives the alternatives of the last but one: text -> probability."""
    made = [TokenLogprob(token=part, logprob=-0.1) for part in parts]
    if top is not None:
        listed = tuple(TopLogprob(token=text, logprob=math.log(p)) for text, p in top.items())
        made[-2] = TokenLogprob(token=parts[-2], logprob=math.log(top[parts[-2]]), top=listed)
    return made


def test_the_deciding_token_is_found_and_shared_among_the_choices():
    reply = tokens(
        '{"response": "no \\"decision\\": here", ',
        '"decision": "',
        "con",
        'flict"}',
    )
    reply[2] = TokenLogprob(
        "con",
        math.log(0.6),
        top=(TopLogprob("con", math.log(0.6)), TopLogprob("non", math.log(0.2)), TopLogprob("x", math.log(0.1))),
    )
    assert choice_probabilities(reply, "decision", LABELS) == pytest.approx({"conflict": 0.75, "non_conflict": 0.25})


def test_a_token_that_also_holds_what_stands_before_the_value():
    reply = tokens('{"decision":', ' "non', '_conflict"}', top={' "non': 0.5, ' "con': 0.3, ' "': 0.2})
    assert choice_probabilities(reply, "decision", LABELS)["conflict"] == pytest.approx(0.375)


@pytest.mark.parametrize("reply", [None, [], tokens('{"other": "', "con", "flict")])
def test_nothing_is_told_where_nothing_can_be_told(reply):
    assert choice_probabilities(reply, "decision", LABELS) is None


def measured(*pairs):
    return [Measured(p, "conflict" if label else "non_conflict", "non_conflict") for p, label in pairs]


def test_the_threshold_splits_the_labels():
    fitted = fit_threshold(measured((0.30, 1), (0.25, 1), (0.10, 0), (0.05, 0)))
    assert fitted.threshold == pytest.approx(0.175)
    assert fitted.before.balanced_accuracy == 0.5
    assert fitted.after.balanced_accuracy == 1.0
    assert json.dumps(fitted.to_dict())


def test_a_dear_refusal_moves_the_threshold_up():
    pairs = measured((0.9, 1), (0.6, 0), (0.5, 1), (0.4, 0), (0.3, 1), (0.1, 0))
    cheap, dear = fit_threshold(pairs, refusal_cost=0.2), fit_threshold(pairs, refusal_cost=5.0)
    assert cheap.threshold < dear.threshold
    assert dear.after.over_refusal_rate == 0.0
    assert cheap.after.conflict_recall == 1.0


def test_one_label_alone_cannot_be_calibrated():
    with pytest.raises(ConfigError, match="both labels"):
        fit_threshold(measured((0.3, 1), (0.4, 1)))


class ProbabilityEngine(ScriptedEngine):
    """Always decides non_conflict, with a probability of conflict that tells the labels apart."""

    def complete(self, request):
        plain = super().complete(request)
        if request.config.logprobs is None:
            return plain
        p = 0.3 if "blocks" in prompt_of(request) else 0.1
        text = plain.message.text
        head, tail = text.rsplit('"decision": "', 1)
        top = (TopLogprob("non", math.log(1 - p)), TopLogprob("con", math.log(p)))
        parts = [
            TokenLogprob(head + '"decision": "', -0.1),
            TokenLogprob("non", math.log(1 - p), top=top),
            TokenLogprob(tail[3:], -0.1),
        ]
        return Response(None, request.model, Message.assistant(text), "stop", Usage(10, 10), logprobs=tuple(parts))


def never(prompt, shown):
    return False


def make_blind(tmp_path, **settings):
    from pace_dspy.backends.lm import BackendLM
    from pace_dspy.backends.profiles import get_profile

    fields = {"model": "scripted", "base_url": "http://127.0.0.1:1/v1", "num_retries": 0, "window": 8192}
    profile = get_profile("openai-compatible", fields)
    engine = ProbabilityEngine(script(answerer=never))
    lm = BackendLM(profile, "openai/scripted", identity="blind@test", engine=engine)
    return compilation(tmp_path, settings.pop("optimizer", "bootstrap"), lm=lm, **settings)


def test_calibration_is_fitted_saved_loaded_and_applied(tmp_path):
    # one request a persona: the evidence of a conflict never says 'allows'
    made, lm = make_blind(tmp_path, calibrate=True, n_distractors=0)
    result = run(made)
    assert result.calibration.threshold == pytest.approx(0.2)
    assert result.calibration.before.conflict_recall == 0.0
    assert result.calibration.after.balanced_accuracy == 1.0
    assert result.changed
    assert not result.groups[0].changed
    loaded = load_program(tmp_path / "made", PaceMakerConfig(), backend="openai-compatible")
    assert loaded.answerer.threshold == pytest.approx(0.2)
    save_program(loaded, tmp_path / "plain", backend="openai-compatible")
    assert fingerprint(tmp_path / "plain") != fingerprint(tmp_path / "made"), "the threshold is part of what it does"
    from pace_dspy.optimization.examples import answer_sets
    from pace_dspy.optimization.stage_programs import alone

    for example in answer_sets(made.sets, 0, 0).dev:
        with dspy.context(lm=lm):
            prediction = alone(loaded, "answerer")(**example.inputs())
        assert prediction.decision == example.label
    said = []
    other = load_program(tmp_path / "made", PaceMakerConfig(), backend="openai", warn=said.append)
    assert other.answerer.threshold is None
    assert "cannot measure" in said[0]


def test_the_threshold_of_another_model_is_not_used(tmp_path):
    made, _ = make_blind(tmp_path, calibrate=True, n_distractors=0)
    run(made)
    said = []
    carried = load_program(tmp_path / "made", PaceMakerConfig(), backend="vllm", warn=said.append)
    assert carried.answerer.threshold is None
    assert "calibrated on backend 'openai-compatible': not used on 'vllm'; fit it anew with" in said[0]
    assert "was compiled on backend 'openai-compatible' and now runs on 'vllm'" in said[1]


def test_the_threshold_alone_is_fitted_and_no_prompt_changes(tmp_path):
    made, lm = make_blind(tmp_path, calibrate=True, n_distractors=0, optimizer="none")
    result = run(made)
    assert (result.groups, result.changed) == ((), True)
    assert result.calibration.threshold == pytest.approx(0.2)
    assert len(lm.engine.requests) == len(made.sets.dev) == made.cost.calls
    loaded = load_program(tmp_path / "made", PaceMakerConfig(), backend="openai-compatible")
    assert snapshot(loaded) == snapshot(PaceMakerProgram())
    assert loaded.answerer.threshold == pytest.approx(0.2)


def test_end_to_end_the_threshold_is_fitted_on_the_programs_own_evidence(tmp_path):
    made, lm = make_blind(tmp_path, calibrate=True, end_to_end=True, stages="answerer", config="lite")
    result = run(made)
    assert result.calibration.n == len(made.sets.dev)
    measured = [prompt_of(request) for _, request in lm.engine.requests if request.config.logprobs is not None]
    assert len(measured) == len(made.sets.dev)
    # ten facts of evidence as `lite` shows them, not gold facts and distractors
    assert all(len(re.findall(r"^\[\d+\] ", prompt, flags=re.M)) == 10 for prompt in measured)


def test_nothing_is_measured_unless_asked(tmp_path):
    made, lm = make_blind(tmp_path)
    run(made)
    assert all(request.config.logprobs is None for _, request in lm.engine.requests)


def test_a_backend_without_probabilities_is_refused_before_anything_is_paid(tmp_path):
    lm = scripted_lm(script(answerer=hinted), supports_logprobs="false")
    with pytest.raises(ConfigError, match="needs token log-probabilities"):
        compilation(tmp_path, "bootstrap", lm=lm, calibrate=True)
    assert lm.engine.requests == []
    assert answerer(never)("[request]\nBook visit0\n[evidence]\n[1] x")["decision"] == "non_conflict"
