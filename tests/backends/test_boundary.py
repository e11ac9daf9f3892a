"""The boundary in detail: what is sent, retried, cached, hidden; each on a scripted model or a scripted server."""

import asyncio
import contextlib
import copy
import json
import logging
import pickle
import random
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import dspy
import pytest
from dspy.utils.exceptions import (
    LMBillingError,
    LMInvalidRequestError,
    LMRateLimitError,
    LMServerError,
    LMTimeoutError,
    LMTransportError,
)
from misbehaving import CANARY, GOOD, MODEL, Act, MisbehavingServer, chat, error
from program_helpers import DAY, make_kb
from scripted import Cut, prompt_of, scripted_lm

from pace_dspy import PaceMakerProgram, make_lm
from pace_dspy.backends.adapter import PaceAdapter
from pace_dspy.backends.cache import ReplyCache
from pace_dspy.backends.failures import map_error
from pace_dspy.backends.remote import is_loopback
from pace_dspy.backends.retry import MAX_BACKOFF_S, MAX_RETRY_AFTER_S, pause_before_retry
from pace_dspy.backends.transport import hide
from pace_dspy.errors import BackendTimeoutError, ConfigError, ReplyError, WindowError
from pace_dspy.evaluation.runner import Job, run_jobs
from pace_dspy.methods import make_check
from pace_dspy.modules.planner import Planner
from pace_dspy.signatures import SelectSeeds
from pace_dspy.types import Request, Task

TASK = Task("Book dinner on Friday", DAY, "home", "Ines")


def environ(server, key=CANARY, model=MODEL):
    return {"PACE_BASE_URL": server.base_url, "PACE_MODEL": model, "PACE_API_KEY": key}


def lm_of(server, settings=None, **more):
    return make_lm("openai-compatible", settings, environ=environ(server), **more)


def plan(lm):
    with dspy.context(lm=lm):
        return Planner()(TASK)


# retries


def test_a_pause_doubles_up_to_a_limit_and_half_of_it_is_chance():
    random.seed(0)
    for attempt, longest in ((1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (9, MAX_BACKOFF_S)):
        pauses = [pause_before_retry(LMServerError("x"), attempt) for _ in range(200)]
        assert longest / 2 <= min(pauses) < max(pauses) <= longest
        assert max(pauses) - min(pauses) > longest / 3


def test_retry_after_is_obeyed_up_to_a_minute():
    for asked in (0, 3, MAX_RETRY_AFTER_S):
        pause = pause_before_retry(LMRateLimitError("x", retry_after=asked), 1)
        assert asked < pause <= asked + 0.5
    assert pause_before_retry(LMRateLimitError("x", retry_after=MAX_RETRY_AFTER_S + 1), 1) is None


def test_what_is_asked_again_and_what_is_not():
    assert pause_before_retry(LMTransportError("refused"), 3) is not None
    assert pause_before_retry(LMTimeoutError("x"), 1) is not None
    assert pause_before_retry(LMTimeoutError("x"), 2) is None
    for final in (LMInvalidRequestError("x", status=400), LMBillingError("x"), ValueError("x")):
        assert pause_before_retry(final, 1) is None


def test_a_plain_call_of_the_model_is_retried_by_the_same_rules(naps):
    with MisbehavingServer(
        {"other": [error(429, "slow", headers={"Retry-After": "2"})]}, well=lambda _: chat("hi")
    ) as server:
        assert lm_of(server)("hello") == ["hi"]
    assert len(naps) == 1
    assert 2 < naps[0] < 3


async def _acall(lm):
    return await lm.acall("hello")


def test_an_async_call_too(naps):
    with MisbehavingServer({"other": [error(500, "oops")]}, well=lambda _: chat("hi")) as server:
        assert asyncio.run(_acall(lm_of(server))) == ["hi"]
    assert len(naps) == 1


# the key


def test_the_key_is_in_no_attribute_copy_or_state():
    with MisbehavingServer() as server:
        lm = lm_of(server)
        plan(lm)
        for text in (
            repr(vars(lm)),
            repr(lm.engine),
            json.dumps(lm.dump_state()),
            repr(lm.history),
            repr(dspy.clients.base_lm.GLOBAL_HISTORY),
        ):
            assert CANARY not in text
        with pytest.raises(TypeError, match="holds its key and is never pickled"):
            pickle.dumps(lm)
        assert copy.deepcopy(lm).engine is lm.engine
        [(_, headers, _)] = server.bodies
    assert headers["Authorization"] == f"Bearer {CANARY}"


def test_the_key_is_hidden_in_the_whole_chain_of_an_error():
    lm = scripted_lm({})
    lm.scrub = lambda text: text.replace(CANARY, "***")
    inner = ValueError(f"inner {CANARY}")
    inner.add_note(f"note {CANARY}")
    outer = LMServerError(f"outer {CANARY}")
    outer.__cause__, inner.__context__ = inner, KeyError(f"deep {CANARY}")
    mapped = map_error(outer, lm)
    chain = [mapped, outer, inner, inner.__context__]
    for error_ in chain:
        assert CANARY not in repr(error_) + repr(vars(error_))
    assert "outer ***" in str(mapped)


def test_a_key_is_hidden_across_chunks_and_placeholders_are_not():
    key = "0123456789"
    text = b"a" + key.encode() + b"b" + key.encode()[:-1] + b"c"
    for size in range(1, len(text) + 1):
        chunks = [text[at : at + size] for at in range(0, len(text), size)]
        assert b"".join(hide(iter(chunks), key)) == b"a***b012345678c", size
    assert b"".join(hide(iter([b"EMPTY plate"]), "EMPTY")) == b"EMPTY plate"


def test_other_keys_of_the_environment_are_never_sent(monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", CANARY)
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    with MisbehavingServer() as server:
        for provider in ("hosted_vllm", "openai"):
            plan(make_lm("openai-compatible", {"provider": provider}, environ={**environ(server), "PACE_API_KEY": ""}))
    assert len(server.bodies) == 2
    for _, headers, _ in server.bodies:
        assert CANARY not in str(headers)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"PACE_BASE_URL": f"http://me:{CANARY}@box/v1"},
            "address of the server at box must hold no user, password or query",
        ),
        ({"PACE_BASE_URL": f"http://box/v1?key={CANARY}"}, "must hold no user, password or query"),
        ({"PACE_API_KEY": f"{CANARY}\nX: y"}, "the key in PACE_API_KEY holds a space, line break or non-ASCII"),
    ],
)
def test_secrets_in_the_wrong_place(variables, message):
    fine = {"PACE_BASE_URL": "http://box/v1", "PACE_MODEL": MODEL, "PACE_API_KEY": CANARY}
    with pytest.raises(ConfigError, match=message) as caught:
        make_lm("openai-compatible", environ={**fine, **variables})
    assert CANARY not in str(caught.value)


def test_proxies_of_the_environment_do_not_catch_the_loopback(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with MisbehavingServer() as server:
        assert plan(lm_of(server))
    assert [
        is_loopback(a)
        for a in ("http://localhost:1/v1", "http://127.1.2.3/v1", "http://[::1]/v1", "http://box/v1", None)
    ] == [True, True, True, False, False]


# what is sent


def test_thinking_gets_room_on_top_of_the_reply_limit():
    with MisbehavingServer() as server:
        plan(lm_of(server, {"thinking_tokens": "1000", "reasoning_effort": "low"}))
    [(_, _, body)] = server.bodies
    assert (body["max_tokens"], body["reasoning_effort"]) == (1320, "low")


def test_parameters_that_a_profile_refuses_are_not_sent():
    with MisbehavingServer() as server:
        lm = make_lm("openai", {"base_url": server.base_url}, environ={"OPENAI_API_KEY": CANARY})
        with dspy.context(lm=lm):
            planner = Planner()
            planner.predict.config.update(temperature=1.0, top_p=0.5, seed=3)
            planner(TASK)
    [(_, _, body)] = server.bodies
    assert not {"temperature", "top_p", "max_tokens"} & body.keys()
    assert (body["seed"], body["max_completion_tokens"]) == (3, 320 + 2048)
    with pytest.raises(ConfigError, match=r"temperature=0\.2 is not taken by gpt-5\.4-mini; use temperature=none"):
        make_lm("openai", {"temperature": "0.2"}, environ={"OPENAI_API_KEY": CANARY})
    chosen = make_lm("openai", {"temperature": "0.2", "model": "gpt-4.1"}, environ={"OPENAI_API_KEY": CANARY})
    assert chosen.kwargs["temperature"] == 0.2


def test_half_characters_of_the_data_are_replaced_before_sending():
    lm = scripted_lm({"planner": lambda _: GOOD["planner"]})
    with dspy.context(lm=lm):
        Planner()(Task("Dinner \ud83d on Friday", DAY, "home"))
    assert "Dinner ? on Friday" in prompt_of(lm.engine.requests[0][1])


def test_a_prompt_that_cannot_fit_is_refused_before_it_is_sent():
    lm = scripted_lm({}, window=1000)
    with (
        dspy.context(lm=lm),
        pytest.raises(WindowError, match=r"the prompt needs \d+ tokens and the reply 320; the window has 1000"),
    ):
        Planner()(Task("word " * 2000, DAY, "home"))
    assert lm.engine.requests == []


def ask_seeds(lm, tokens=400):
    inputs = {"request": "Book dinner", "today": "Wednesday", "candidates": "[1] a"}
    return PaceAdapter()(lm, {"max_tokens": tokens}, SelectSeeds, [], inputs)


def test_a_cut_reply_gets_what_room_the_window_has_or_none():
    with pytest.raises(WindowError) as caught:
        ask_seeds(scripted_lm({}, window=512))
    prompt = int(re.search(r"needs (\d+) tokens and the reply 400", str(caught.value)).group(1))

    def limits(window):
        lm = scripted_lm({None: [Cut('{"keep": [1'), '{"keep": [1]}']}, window=window)
        problem = None
        try:
            ask_seeds(lm)
        except ReplyError as exc:
            problem = exc.problem
        return [request.config.max_tokens for _, request in lm.engine.requests], problem

    assert limits(8192) == ([400, 800], None)
    assert limits(prompt + 500) == ([400, 500], None)
    for slack in (0, 99):
        assert limits(prompt + 400 + slack) == (
            [400],
            "the reply was cut off by the token limit, and the window has no more room",
        )


def test_an_empty_reply_is_asked_for_again_with_a_note_in_the_prompt():
    lm = scripted_lm({None: ["", '{"keep": [1]}']})
    assert ask_seeds(lm) == [{"keep": [1]}]
    first, second = (request for _, request in lm.engine.requests)
    assert len(first.messages) == len(second.messages) == 1
    note = "(Your last reply cannot be used: the reply is empty. Send the JSON object alone.)"
    assert second.messages[0].text == f"{first.messages[0].text}\n\n{note}"


def test_several_generations_are_several_calls(tmp_path):
    script = {None: [{"keep": [1]}, {"keep": [2]}, {"keep": [3]}]}
    lm = scripted_lm(script, reply_cache=ReplyCache(tmp_path))
    inputs = {"request": "Book dinner", "today": "Wednesday", "candidates": "[1] a"}
    ask = [PaceAdapter()(lm, {"max_tokens": 100, "n": 3}, SelectSeeds, [], inputs) for _ in range(2)]
    assert ask[0] == ask[1] == [{"keep": [1]}, {"keep": [2]}, {"keep": [3]}]
    assert len(lm.engine.requests) == 3


def test_dspys_warning_about_truncation_stays_off_the_log(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("dspy"), "propagate", True)
    caplog.set_level(logging.WARNING, logger="dspy")
    lm = scripted_lm({None: [Cut('{"keep": [1'), '{"keep": [1]}', Cut("on its own")]})
    ask_seeds(lm)
    assert "truncated" not in caplog.text
    lm("a call that is not ours")
    assert "truncated" in caplog.text


# the cache


def test_two_servers_with_one_model_name_and_one_cache_folder_never_mix(tmp_path):
    def cues(direction):
        return lambda stage: chat(json.dumps({"cues": [{"direction": direction, "why": "w", "anchors": []}]}))

    with MisbehavingServer(well=cues("left")) as left, MisbehavingServer(well=cues("right")) as right:
        for _ in range(3):
            for server, direction in ((left, "left"), (right, "right")):
                [cue] = plan(lm_of(server, reply_cache=ReplyCache(tmp_path)))
                assert cue.direction == direction
        assert (left.posts, right.posts) == (1, 1)


def test_a_repaired_reply_is_cached_and_the_refused_one_is_not(tmp_path):
    with MisbehavingServer({"planner": [chat("prose")]}) as server:
        lm = lm_of(server, reply_cache=ReplyCache(tmp_path))
        assert plan(lm) == plan(lm)
        assert server.posts == 2
    with MisbehavingServer({"planner": chat("prose")}) as server:
        lm = lm_of(server, reply_cache=ReplyCache(tmp_path))
        assert plan(lm) == plan(lm) == ()
        assert server.posts == 4


def test_a_stored_reply_that_no_longer_validates_is_asked_for_again(tmp_path):
    cache = ReplyCache(tmp_path)
    with MisbehavingServer() as server:
        lm = lm_of(server, reply_cache=cache)
        plan(lm)
        [(key,)] = cache._db.execute("SELECT key FROM replies").fetchall()
        cache.put(key, {"text": "old rubbish"})
        assert plan(lm)
        assert server.posts == 2


def test_a_damaged_cache_file_is_named(tmp_path):
    (tmp_path / "replies.sqlite").write_bytes(b"not a database " * 100)
    with pytest.raises(ConfigError, match=r"the reply cache .*replies\.sqlite cannot be used .* --no-cache"):
        ReplyCache(tmp_path)


def test_a_cache_that_cannot_be_written_costs_no_request(tmp_path, caplog):
    cache = ReplyCache(tmp_path)
    with MisbehavingServer() as server:
        lm = lm_of(server, reply_cache=cache)
        cache._db.execute("DROP TABLE replies")
        assert plan(lm)
        assert plan(lm)
    assert caplog.text.count("the reply cache") == 1


# many at once


class Rows:
    """A sink that remembers rows."""

    def __init__(self):
        self.rows = []

    def finished(self):
        return set()

    def put(self, row, position):
        self.rows.append(row)

    def exclusive(self):
        return contextlib.nullcontext()


def test_eighteen_requests_with_sixteen_in_flight_take_three_rounds_not_ninety(tmp_path):
    kb = make_kb("home")
    with MisbehavingServer(delay_s=0.2) as server:
        lm = lm_of(server, {"window": "8192"}, reply_cache=ReplyCache(tmp_path))
        jobs = [
            Job(Request("home", f"q{i}", f"Book dinner {i} on Friday", DAY), kb.kb_id, "Ines", i) for i in range(18)
        ]
        sink = Rows()
        with dspy.context(lm=lm):
            started = time.perf_counter()
            outcome = run_jobs(make_check(PaceMakerProgram()), jobs, sink, concurrency=16)
            seconds = time.perf_counter() - started
    assert outcome.done == 18
    assert {row["decision"] for row in sink.rows} == {"non_conflict"}
    assert (server.posts, server.most_open) == (90, 16)
    assert seconds < 3


def test_parallel_requests_do_not_mix():
    def echo(server):
        def act(path, headers, body):
            asked = body["messages"][-1]["content"].split("Book ")[1].split(" ")[0]
            return chat(json.dumps({"cues": [{"direction": asked, "why": "w", "anchors": []}]}))

        server.act = act
        return server

    with echo(MisbehavingServer()) as server:
        lm = lm_of(server)
        server.open = 10**6

        def one(i):
            with dspy.context(lm=lm):
                [cue] = Planner()(Task(f"Book table{i} on Friday", DAY, "home"))
            return cue.direction

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(one, range(64))) == [f"table{i}" for i in range(64)]
    assert threading.active_count() < 100


def test_a_hanging_server_fails_within_its_timeout(naps):
    with MisbehavingServer({"planner": Act({}, delay_s=30)}) as server:
        started = time.perf_counter()
        with pytest.raises(BackendTimeoutError, match=r"no complete reply within 0\.2 s"):
            plan(lm_of(server, {"timeout_s": "0.2"}))
        assert time.perf_counter() - started < 2
    assert server.posts == 2
