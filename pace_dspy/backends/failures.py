"""DSPy's errors, mapped to ours: what failed, where, which parameter is at fault, and what to do.

The original error stays attached (``raise ... from``); keys are removed from the whole chain first.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

from dspy.utils import exceptions as dspy_errors

from pace_dspy.errors import (
    AuthError,
    BackendError,
    BackendTimeoutError,
    BadRequestError,
    BadSettingError,
    MissingKeyError,
    QuotaError,
    RateLimitError,
    ServerError,
    WindowError,
)

AGAIN = "run again later: finished work is kept"
_MAPPING: tuple[tuple[type[Exception], type[BackendError], str], ...] = (
    (
        dspy_errors.ContextWindowExceededError,
        WindowError,
        "Use a backend with a larger window, or tell us its size: --set window=N trims the evidence to fit",
    ),
    (dspy_errors.LMAuthError, AuthError, "Check the key and its permissions"),
    (dspy_errors.LMBillingError, QuotaError, "Check the account's credit"),
    (dspy_errors.LMRateLimitError, RateLimitError, f"Lower --concurrency, or {AGAIN}"),
    (dspy_errors.LMTimeoutError, BackendTimeoutError, "Check that the server answers; --set timeout_s=N if it is slow"),
    (dspy_errors.LMTransportError, BackendTimeoutError, "Check the address and that the server is running"),
    (dspy_errors.LMInvalidRequestError, BadRequestError, "Check the model name and the profile's parameters"),
    (dspy_errors.LMUnsupportedFeatureError, BadRequestError, "Check the profile's parameters"),
    (dspy_errors.LMNotConfiguredError, MissingKeyError, "Set the key's environment variable"),
    (dspy_errors.LMServerError, ServerError, f"The server failed; {AGAIN}"),
)
_ADVICE = {
    "additionalProperties": "Use --set additional_properties=false",
    "max_tokens": "Use --set provider=openai, which sends max_completion_tokens",
    "max_completion_tokens": "Use --set provider=hosted_vllm, which sends max_tokens",
    "maxOutputTokens": "Lower the reply's limit: --set thinking_tokens=0",
    "response_format": "Use --set schema_form=json_object, or schema_form=none",
    "json_schema": "Use --set schema_form=json_object, or schema_form=none",
    "responseSchema": "Use --set schema_form=json_object, or schema_form=none",
    "response_schema": "Use --set schema_form=json_object, or schema_form=none",
    "guided_json": "Use --set schema_form=json_object, or schema_form=none",
    "structured_outputs": "Use --set schema_form=json_object, or schema_form=none",
    "reasoning_effort": "Use --set reasoning_effort=none, which sends none",
    "temperature": "Use --set temperature=none, which sends none",
    "top_p": "Take top_p out of the predictor's settings",
    "seed": "Use --set supports_seed=false, which sends none",
    "model": "Use --set model=NAME; `pace-dspy backends test` lists what the server offers",
}
"""What to do about a parameter that a backend refuses; in the order in which a message is searched for them."""
_WRONG_ADDRESS = "Check base_url: it ends in /v1 for OpenAI-compatible servers, in /v1beta for Gemini"
_GUIDANCE = ("\n\n  To fix:", "\n\n  credential came from:")
_MAX_PROBLEM_CHARS = 400
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"<(script|style).*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)


def map_error(exc: Exception, lm: Any) -> BackendError:
    """Return our typed error for a DSPy error (raise it ``from`` the original).

    Args:
        exc: What ``dspy.LM`` raised.
        lm: The model that was asked; a `BackendLM` adds its profile and hides its key.
    """
    scrub = getattr(lm, "scrub", None)
    if scrub is not None:
        scrub_chain(exc, scrub)
    kind, remedy = next(
        ((ours, remedy) for theirs, ours, remedy in _MAPPING if isinstance(exc, theirs)), (BackendError, None)
    )
    problem, status = readable(str(getattr(exc, "message", "") or exc)), getattr(exc, "status", None)
    parameter = None
    if kind is BadRequestError or status in {404, 405}:
        kind, parameter, remedy = _refusal(exc, problem, status, remedy)
    if status and f"HTTP {status}" not in problem:
        problem = f"HTTP {status}: {problem}"
    if kind in (RateLimitError, ServerError) and getattr(exc, "retry_after", None):
        problem += f"; the server asks to wait {exc.retry_after:g} s"  # type: ignore[attr-defined]
    profile = getattr(lm, "profile", None)
    return kind(
        problem,
        backend=getattr(profile, "name", None),
        model=str(lm.model).partition("/")[2] or str(lm.model),
        parameter=parameter,
        remedy=remedy,
    )


def readable(text: str) -> str:
    """Return an error text in one line: lm15's advice for its own API removed, pages and envelopes opened."""
    with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
        text = str(json.loads(text)["error"]["message"])
    for mark in _GUIDANCE:
        text = text.split(mark)[0]
    if re.search(r"<(!doctype|html|head|body)\b", text, re.IGNORECASE):
        title = _TITLE.search(text)
        words = title.group(1) if title else _TAG.sub(" ", text)
        text = f"a web page, not a model's reply: {' '.join(words.split())[:100]}"
    return " ".join(text.split())[:_MAX_PROBLEM_CHARS].rstrip(". ")


def scrub_chain(exc: BaseException, scrub: Any) -> None:
    """Remove the key from an error and from everything it was raised from: arguments, texts, notes."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [exc]
    while todo:
        error = todo.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        error.args = tuple(scrub(arg) if isinstance(arg, str) else arg for arg in error.args)
        for name, value in list(getattr(error, "__dict__", {}).items()):
            if isinstance(value, str):
                setattr(error, name, scrub(value))
            elif name == "__notes__":
                setattr(error, name, [scrub(note) for note in value])
        todo += [error.__cause__, error.__context__]


def _refusal(
    exc: Exception, problem: str, status: int | None, remedy: str | None
) -> tuple[type[BackendError], str | None, str | None]:
    """Say whether a 400-class refusal is about something that goes with every request, and about what."""
    if isinstance(exc, dspy_errors.LMUnsupportedModelError):
        return BadSettingError, "model", _ADVICE["model"]
    named = getattr(exc.__cause__, "parameter", None)
    setting = next((name for name in _ADVICE if _mentions(problem, name)), None)
    if named in _ADVICE and setting != "additionalProperties":
        setting = named
    if setting == "model" and named != "model" and status != 404:
        setting = None  # "this model does not ..." blames something else
    if setting == "additionalProperties" and "required" in problem:
        return BadSettingError, setting, "Use --set additional_properties=true"
    if setting is not None:
        return BadSettingError, setting, _ADVICE[setting]
    if status in {404, 405}:
        return BadSettingError, "base_url", _WRONG_ADDRESS
    return BadRequestError, named, remedy


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) is not None
