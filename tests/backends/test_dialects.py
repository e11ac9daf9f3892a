"""Each remote profile through the boundary in its own dialect: what goes out, and how Gemini's failures come back."""

import json

import dspy
import pytest
from misbehaving import CANARY, GOOD, Act, MisbehavingServer, good
from program_helpers import DAY

from pace_dspy import make_lm
from pace_dspy.backends.usage import request_log
from pace_dspy.errors import AuthError, BadRequestError, BadSettingError, RateLimitError, WindowError
from pace_dspy.modules.planner import Planner
from pace_dspy.types import Task

TASK = Task("Book dinner on Friday", DAY, "home", "Ines")
KEYS = {
    "OPENAI_API_KEY": CANARY,
    "GEMINI_API_KEY": CANARY,
    "VLLM_API_KEY": CANARY,
    "PACE_API_KEY": CANARY,
    "PACE_MODEL": "m",
}
CUES = json.dumps(GOOD["planner"])


def gemini(text, finish="STOP", **part):
    parts = [{"text": text, **part}] if text is not None else []
    return Act(
        {
            "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": finish}],
            "usageMetadata": {"promptTokenCount": 50, "candidatesTokenCount": 7, "totalTokenCount": 57},
        }
    )


def refusal(status, message, kind, *details):
    text = f"{message} {CANARY}"
    return Act({"error": {"code": status, "message": text, "status": kind, "details": list(details)}}, status)


class AnyPath(MisbehavingServer):
    """Takes requests in every dialect; plays acts in order, then does well."""

    def __init__(self, *acts, **options):
        super().__init__(**options)
        self.queue = list(acts)
        self.paths = []

    def act(self, path, headers, body):
        self.calls["any"] += 1
        self.open += 1
        self.paths.append(path)
        self.bodies.append((path, headers, body))
        if self.queue:
            return self.queue.pop(0)
        return gemini(CUES) if "generateContent" in path else good("planner")


def plan(backend, server, **settings):
    root = server.base_url.removesuffix("/v1") + ("/v1beta" if backend == "gemini" else "/v1")
    with dspy.context(lm=make_lm(backend, {"base_url": root, **settings}, environ=KEYS)), request_log() as log:
        return Planner()(TASK), log


@pytest.mark.parametrize(
    ("backend", "path", "limit", "temperature"),
    [
        ("openai", "/v1/chat/completions", ("max_completion_tokens", 320 + 2048), None),
        ("openai-compatible", "/v1/chat/completions", ("max_tokens", 320), 0.0),
        ("vllm", "/v1/chat/completions", ("max_tokens", 320), 0.0),
        ("ollama", "/v1/chat/completions", ("max_tokens", 320), 0.0),
        ("gemini", "/v1beta/models/gemini-3.1-flash-lite:generateContent", ("maxOutputTokens", 320 + 2048), 0.0),
    ],
)
def test_what_goes_out(backend, path, limit, temperature):
    with AnyPath() as server:
        (cue,), log = plan(backend, server)
    assert cue.direction == "time"
    assert server.paths == [path]
    [(_, headers, body)] = server.bodies
    settings = body.get("generationConfig", body)
    assert settings[limit[0]] == limit[1]
    assert settings.get("temperature") == temperature
    schema = settings.get("responseSchema") or settings["response_format"]["json_schema"]["schema"]
    assert ("additionalProperties" in json.dumps(schema)) == (backend != "gemini")
    assert "$ref" not in json.dumps(schema)
    sent = str(headers)
    assert (CANARY in sent) == (backend != "ollama")
    [usage] = log.usage()
    assert (usage.calls, usage.retries, usage.repairs) == (1, 0, 0)


def test_gemini_thoughts_and_cut_replies():
    with AnyPath(gemini(CUES[:20], "MAX_TOKENS")) as server:
        cues, log = plan("gemini", server)
    assert len(cues) == 1
    assert log.usage()[0].repairs == 1
    limits = [body["generationConfig"]["maxOutputTokens"] for _, _, body in server.bodies]
    assert limits == [320 + 2048, 640 + 2048]
    draft = Act(gemini(CUES, thought=True).body)
    with AnyPath(draft, draft) as server:
        cues, log = plan("gemini", server)
    assert cues == ()
    assert log.fallbacks[0].reason == "reply unusable twice: the reply holds only thinking"


@pytest.mark.parametrize("finish", ["SAFETY", "RECITATION", "MALFORMED_FUNCTION_CALL", "OTHER"])
def test_gemini_replies_that_ended_badly_are_fallbacks(finish):
    with AnyPath(gemini(CUES, finish), gemini(CUES, finish)) as server:
        cues, log = plan("gemini", server)
    assert cues == ()
    assert len(server.paths) == 2
    assert log.fallbacks[0].reason.startswith("reply unusable twice: ")


@pytest.mark.parametrize(
    ("act", "kind", "message", "calls"),
    [
        (
            refusal(
                400, "Unknown name \"additionalProperties\" at 'generation_config.response_schema'", "INVALID_ARGUMENT"
            ),
            BadSettingError,
            r"\(parameter 'additionalProperties'\)\. Use --set additional_properties=false",
            1,
        ),
        (
            refusal(
                400, "The input token count (9) exceeds the maximum number of tokens allowed (5).", "INVALID_ARGUMENT"
            ),
            WindowError,
            "HTTP 400: The input token count",
            1,
        ),
        (refusal(400, "API key not valid.", "INVALID_ARGUMENT"), AuthError, "HTTP 400: API key not valid", 1),
        (refusal(400, "Something is wrong.", "INVALID_ARGUMENT"), BadRequestError, "HTTP 400: Something", 1),
        (refusal(403, "Permission denied.", "PERMISSION_DENIED"), AuthError, "HTTP 403: Permission denied", 1),
        (
            refusal(
                429,
                "Quota exceeded.",
                "RESOURCE_EXHAUSTED",
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "4000s"},
            ),
            RateLimitError,
            r"HTTP 429: Quota exceeded.*the server asks to wait 4000 s",
            1,
        ),
        (
            refusal(404, "models/x is not found for API version v1beta", "NOT_FOUND"),
            BadSettingError,
            "parameter 'model'",
            1,
        ),
    ],
)
def test_gemini_refusals(act, kind, message, calls, naps):
    with AnyPath(*[act] * 5) as server, pytest.raises(kind, match=message) as caught:
        plan("gemini", server)
    assert CANARY not in str(caught.value)
    assert len(server.paths) == calls
