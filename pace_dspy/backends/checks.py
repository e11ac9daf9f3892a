"""What this package needs of a server, checked on the server itself, one thing at a time. Ours.

`run_checks` asks about fifteen to thirty small questions. `experiments/check_server.py` prints the outcome.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import dspy

from pace_dspy.backends.adapter import PaceAdapter
from pace_dspy.backends.budget import prompt_limit, require_room
from pace_dspy.backends.check_questions import (
    SAMPLE,
    CopyCode,
    PickTopic,
    ask,
    ask_agent,
    plain_request,
    told,
    unseen_words,
    user_turn,
    words_of,
)
from pace_dspy.backends.lm import BackendLM
from pace_dspy.backends.logprobs import CHOICES_KEY, TOP_TOKENS
from pace_dspy.backends.preflight import check_server
from pace_dspy.backends.reply import Unusable, json_objects, reply_text, validate
from pace_dspy.backends.requests import build_request
from pace_dspy.backends.usage import request_log
from pace_dspy.errors import BackendError, ConfigError, ReplyError, WindowError
from pace_dspy.modules.answerer import Answerer
from pace_dspy.modules.base import StageAgent, numbered
from pace_dspy.modules.evidence import PostHopFilter, PreHopFilter
from pace_dspy.modules.judge import Judge
from pace_dspy.modules.planner import Planner
from pace_dspy.modules.second_look import SecondLook
from pace_dspy.modules.views import MultiViewGenerator

Outcome = Literal["pass", "fail", "untold"]
LARGE_WINDOW = 40_000
"""Windows above this are not filled: that would cost money or minutes."""
WRITTEN_TOKENS = 64
FIRST = "model and window"
"""The check that is never left out."""
_CODES = ("AMBER", "BIRCH", "COBALT", "DAHLIA", "EMBER", "FALCON", "GARNET", "HAZEL")


@dataclass(frozen=True)
class Check:
    """One thing that was checked.

    Attributes:
        name: What.
        outcome: ``untold`` when the server, or the profile, gives no way to tell; that is not a failure.
        seen: What was seen, with numbers, or what to do.
        seconds: Wall time.
    """

    name: str
    outcome: Outcome
    seen: str
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return asdict(self)


Seen = tuple[Outcome, str]
Step = Callable[[BackendLM], Seen]


def run_checks(
    lm: BackendLM,
    *,
    in_flight: int = 8,
    only: Sequence[str] = (),
    on_check: Callable[[Check], None] = lambda _: None,
) -> list[Check]:
    """Check a server; a failed check does not stop the others.

    Args:
        lm: The model as a run would ask it, without a reply cache; it takes over the window that its server names.
        in_flight: Prompts asked at once in the check for mixed replies.
        only: Parts of the names of checks; the others are left out, but for the first. Empty for all.
        on_check: Called after each check.

    Raises:
        BackendError: The server cannot be reached, refuses the key, or does not serve the model: nothing else is
            worth asking.
        ConfigError: ``in_flight`` below 1, or no check is called like ``only``.
    """
    if in_flight < 1:
        raise ConfigError(f"prompts in flight must be at least 1, received {in_flight}")
    steps = [(name, step) for name, step in _steps(in_flight) if not only or any(part in name for part in only)]
    if not steps and not any(part in FIRST for part in only):
        known = ", ".join([FIRST, *(name for name, _ in _steps(in_flight))])
        raise ConfigError(f"no check is called like {', '.join(only)}; there are: {known}")
    first = _check(FIRST, _served, lm)
    on_check(first)
    done = [first]
    for name, step in steps:
        try:
            done.append(_check(name, step, lm))
        except BackendError as exc:
            done.append(Check(name, "fail", f"{type(exc).__name__}: {exc.problem}", 0.0))
        on_check(done[-1])
    return done


def _check(name: str, step: Step, lm: BackendLM) -> Check:
    started = time.perf_counter()
    outcome, seen = step(lm)
    return Check(name, outcome, seen, round(time.perf_counter() - started, 2))


def _steps(in_flight: int) -> Iterator[tuple[str, Step]]:
    yield "schema is enforced", _enforced
    agents = (Planner(), MultiViewGenerator(), PreHopFilter(), SecondLook(), PostHopFilter(), Answerer(), Judge())
    for agent in agents:
        yield f"stage {agent.stage}", partial(_stage, agent)
    yield "long evidence is trimmed", _trimmed
    yield "over-long prompt is refused", _refused
    yield f"{in_flight} at once stay apart", partial(_apart, in_flight)
    yield "prefix cache", _prefix
    yield "log-probabilities", _logprobs
    yield "speed, one at a time", _speed


def _served(lm: BackendLM) -> Seen:
    served, window = check_server(lm), lm.profile.window
    model = lm.model.partition("/")[2]
    if window is None:
        return "untold", f"{model}; nobody says the window, so prompts are not trimmed: --set window=N"
    return "pass", f"{model}, {window:,} tokens" + ("" if served else " (by the profile; the server was not asked)")


def _enforced(lm: BackendLM) -> Seen:
    form = lm.profile.schema_form
    if form == "none":
        return "untold", "the profile sends no schema (schema_form=none)"
    response = ask(lm, build_request(lm, PickTopic, [user_turn("Say good morning to me.")], lm.kwargs, WRITTEN_TOKENS))
    try:
        text = reply_text(response)
        topic = json_objects(text)[0] if form == "json_object" else validate(PickTopic, text)["topic"]
    except Unusable as exc:
        other = "none" if form == "json_object" else "json_object, or none"
        return "fail", f"a question that asks for no JSON got none ({exc}): --set schema_form={other}"
    return "pass", f"{form}: a question that asks for no JSON got {topic!r}"


def _stage(agent: StageAgent, lm: BackendLM) -> Seen:
    try:
        return "pass", told(ask_agent(agent, lm)[1])
    except ReplyError as exc:
        return "fail", f"{exc.problem}: {exc.raw[:80]!r}"


def _trimmed(lm: BackendLM) -> Seen:
    window = lm.profile.window
    if window is None or window > LARGE_WINDOW:
        return "untold", "no window to fill" if window is None else f"a window of {window:,} tokens is not filled"
    agent = Answerer()
    lines = numbered([f"Ines met guest {n} at place {n % 7} and liked it." for n in range(window // 6)])
    fixed = {name: SAMPLE[name] for name in ("persona", "today", "request")}
    with request_log() as log, dspy.context(lm=lm):
        shown = agent.fit(lines, "evidence", **fixed)
    signature = agent.predict.signature
    messages = PaceAdapter().format(signature, [], {**fixed, "evidence": "\n".join(lines[:shown])})
    response = ask(lm, build_request(lm, signature, messages, lm.kwargs, agent.reply_tokens))
    read, words = response.usage.input_tokens or 0, words_of(messages)
    if not log.trims:
        return "fail", f"all {len(lines)} notes were taken to fit"
    seen = f"{shown} of {len(lines)} notes kept, {read:,} tokens read, {agent.reply_tokens} kept for the reply"
    if 0 < read < words:
        return "fail", f"{seen}: fewer than its {words:,} words, so the server cut the prompt"
    return "pass", seen


def _refused(lm: BackendLM) -> Seen:
    window = lm.profile.window
    if window is None or window > LARGE_WINDOW:
        return "untold", "no window to overfill" if window is None else f"{window:,} tokens are not sent"
    messages = [user_turn(unseen_words(window + window // 4))]
    try:
        require_room(lm, messages, WRITTEN_TOKENS)
        return "fail", "our own budget let it through"
    except WindowError:
        pass
    try:
        response = ask(lm, plain_request(lm, messages[0]["content"], WRITTEN_TOKENS))
    except WindowError as exc:
        return "pass", f"by us before sending; by the server as a window error: {exc.problem[:120]}"
    read = f"{response.usage.input_tokens or 0:,} of {words_of(messages):,} words or more"
    return "fail", f"the server read {read} and answered: it cuts prompts without a word. Set window to what it has"


def _apart(in_flight: int, lm: BackendLM) -> Seen:
    codes = [f"{_CODES[n % len(_CODES)]}-{1137 + 41 * n}" for n in range(in_flight)]

    def copy(code: str) -> str | BackendError:
        agent = StageAgent("planner", CopyCode, reply_tokens=40)
        try:
            reply, _ = ask_agent(agent, lm, request=f"Please note that the code word of this parcel is {code}.")
            return str(reply.code)
        except BackendError as exc:
            return exc

    started = time.perf_counter()
    with ThreadPoolExecutor(in_flight) as pool:
        replies = list(pool.map(copy, codes))
    seconds = time.perf_counter() - started
    failures = [reply for reply in replies if isinstance(reply, BackendError)]
    if failures:
        return "fail", f"{len(failures)} of {in_flight} failed: {failures[0].problem}"
    pairs = list(zip(codes, map(str, replies), strict=True))
    mixed = [(code, reply) for code, reply in pairs if any(other in reply for other in codes if other != code)]
    if mixed:
        return "fail", f"{len(mixed)} of {in_flight} replies hold another prompt's code, such as {mixed[0]}"
    own = sum(code in reply for code, reply in pairs)
    seen = f"{own} of {in_flight} replies hold their own code, none another's, in {seconds:.1f} s"
    return ("pass" if own == in_flight else "untold"), seen


def _prefix(lm: BackendLM) -> Seen:
    for _ in range(2):
        _, usage = ask_agent(Answerer(), lm)
    if not usage.prompt_cached_tokens:
        return "untold", "no cached tokens reported for a repeated prompt (vLLM: --enable-prompt-tokens-details)"
    return "pass", f"{usage.prompt_cached_tokens} of the {usage.prompt_tokens} tokens of a repeated prompt"


def _logprobs(lm: BackendLM) -> Seen:
    if not lm.profile.supports_logprobs:
        return "untold", "the profile asks for none"
    reply, _ = ask_agent(Answerer(), lm, config={"logprobs": TOP_TOKENS})
    shares = reply.get(CHOICES_KEY, {}).get("decision")
    if shares is None:
        return "fail", "none in the reply: --set supports_logprobs=false (a calibrated threshold needs them)"
    return "pass", f"decision {reply.decision}, conflict with probability {shares['conflict']:.3f}"


def _speed(lm: BackendLM) -> Seen:
    words = min(1000, (prompt_limit(lm, 1) or 4000) // 4)
    read_s, usage = _timed(lm, unseen_words(words), 1)
    fresh = (usage.input_tokens or 0) - (usage.cache_read_tokens or 0)
    write_s, written = _timed(lm, "Write a long story about a fox and a lighthouse.", WRITTEN_TOKENS)
    wrote = written.output_tokens or 0
    if not fresh or not wrote:
        return "untold", "the server reports no tokens"
    return "pass", (
        f"{fresh / read_s:,.1f} tokens/s read ({fresh} in {read_s:.2f} s), "
        f"{wrote / write_s:,.1f} tokens/s written ({wrote} in {write_s:.2f} s)"
    )


def _timed(lm: BackendLM, text: str, tokens: int) -> tuple[float, Any]:
    started = time.perf_counter()
    response = ask(lm, plain_request(lm, text, tokens))
    return time.perf_counter() - started, response.usage
