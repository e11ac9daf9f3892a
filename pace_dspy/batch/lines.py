"""The lines of the two files of a round: a prompt in OpenAI's Batch format, and what came back for it.

``{"custom_id", "method", "url", "body"}`` goes out, ``{"id", "custom_id", "response", "error"}`` comes back, with
``response`` either null or ``{"status_code", "request_id", "body"}``. vLLM's ``run-batch`` puts the text of an error
beside a null body.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

from pace_dspy.backends.failures import readable

URL: Final = "/v1/chat/completions"
MISSING = "missing"
_RETRIED = {408, 409, 425, 429}
"""HTTP statuses below 500 that can pass; any other refusal of this kind is final, as on a live backend."""
_REASON_CHARS = 200


@dataclass(frozen=True)
class Reply:
    """An answer, or a refusal that is final: what a live server would have sent.

    Attributes:
        status: HTTP status.
        body: The JSON text.
        usage: Tokens read, of these from the prefix cache, and written.
    """

    status: int
    body: bytes
    usage: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True)
class Failure:
    """No answer, and asking again can help.

    Attributes:
        kind: In few words, for counts: ``missing``, ``HTTP 500``, ``batch_expired``, ``no chat completion``.
        reason: What was said, in one line; empty when nothing was.
    """

    kind: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}" if self.reason else self.kind


def custom_id_of(body: dict[str, Any]) -> str:
    """Return the key of a prompt: a hash of everything that is sent, so that equal prompts have equal keys."""
    canonical = json.dumps([URL, body], sort_keys=True, ensure_ascii=False)
    return f"pace-{hashlib.sha256(canonical.encode()).hexdigest()[:32]}"


def request_line(custom_id: str, body: dict[str, Any]) -> str:
    """Return the line of a prompt, without line break."""
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": URL, "body": body}, ensure_ascii=False)


def response_line(custom_id: str, status: int, body: object) -> dict[str, Any]:
    """Return the line of an answer or of an HTTP error, as a dictionary."""
    response = {"status_code": status, "request_id": custom_id, "body": body}
    return {"id": f"reply-{custom_id}", "custom_id": custom_id, "response": response, "error": None}


def failure_line(custom_id: str, code: str, message: str) -> dict[str, Any]:
    """Return the line of a prompt that got no HTTP answer at all."""
    return {
        "id": f"reply-{custom_id}",
        "custom_id": custom_id,
        "response": None,
        "error": {"code": code, "message": message},
    }


def parse_line(line: bytes) -> dict[str, Any] | None:
    """Return a line of a file as an object with a ``custom_id``; ``None`` when it is no such thing."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get("custom_id"), str) else None


def outcome_of(line: dict[str, Any]) -> Reply | Failure:
    """Return what a line of the responses file says about its prompt."""
    response, error = line.get("response"), line.get("error")
    if not isinstance(response, dict):
        return Failure(_code(error) or "no response", _said(error))
    status, body = response.get("status_code"), response.get("body")
    if not isinstance(status, int) or isinstance(status, bool):
        return Failure("no status code")
    if status == 200 and error is not None:
        return Failure(_code(error) or "an error", _said(error))
    if status == 200:
        return _answer(body)
    told = body if body is not None else error
    if status >= 500 or status < 400 or status in _RETRIED:
        return Failure(f"HTTP {status}", _said(told))
    enveloped = told if isinstance(told, dict) and "error" in told else {"error": told or f"HTTP {status}"}
    return Reply(status, _bytes(enveloped))


def _answer(body: object) -> Reply | Failure:
    choices = body.get("choices") if isinstance(body, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(body, dict) or not isinstance(first, dict) or not isinstance(first.get("message"), dict):
        return Failure("no chat completion", _said(body))
    used = body.get("usage")
    usage: dict[str, Any] = used if isinstance(used, dict) else {}
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    tokens = (_count(usage.get("prompt_tokens")), _count(cached), _count(usage.get("completion_tokens")))
    return Reply(200, _bytes(body), tokens)


def _bytes(value: object) -> bytes:
    return json.dumps(value).encode()


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _inner(error: object) -> object:
    return error["error"] if isinstance(error, dict) and "error" in error else error


def _code(error: object) -> str:
    inner = _inner(error)
    code = inner.get("code") if isinstance(inner, dict) else None
    return str(code)[:40] if code else ""


def _said(error: object) -> str:
    inner = _inner(error)
    message = inner.get("message") if isinstance(inner, dict) else inner
    text = message if isinstance(message, str) else "" if message is None else json.dumps(message)
    return readable(text)[:_REASON_CHARS]
