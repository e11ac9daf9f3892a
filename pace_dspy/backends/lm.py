"""`BackendLM`: a ``dspy.LM`` that knows its profile, and the mapping of DSPy's errors to ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dspy
from dspy.utils import exceptions as dspy_errors

from pace_dspy.backends.cache import ReplyCache
from pace_dspy.backends.profiles import BackendProfile, get_profile, identity, resolve_connection
from pace_dspy.errors import (
    AuthError,
    BackendError,
    BackendTimeoutError,
    BadRequestError,
    ConfigError,
    MissingKeyError,
    QuotaError,
    RateLimitError,
    ServerError,
    WindowError,
)

TokenCounter = Callable[[str], int]


class BackendLM(dspy.LM):
    """A language model built from a backend profile.

    Attributes:
        profile: Window, structured-output form, prices and limits.
        identity: Model and server address without key; part of every reply-cache key.
        token_counter: Exact token counts where the backend offers them, else ``None``.
        reply_cache: Where validated replies are kept, ``None`` to ask anew each time.
    """

    profile: BackendProfile
    identity: str
    token_counter: TokenCounter | None
    reply_cache: ReplyCache | None

    def __init__(
        self,
        profile: BackendProfile,
        model: str,
        *,
        identity: str,
        token_counter: TokenCounter | None = None,
        reply_cache: ReplyCache | None = None,
        secret: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            model, temperature=profile.temperature, cache=False, num_retries=profile.num_retries, **options
        )
        self.profile = profile
        self.identity = identity
        self.token_counter = token_counter
        self.reply_cache = reply_cache
        self._secret = secret

    def __deepcopy__(self, memo: dict[int, Any]) -> BackendLM:
        """Return a light copy: clients, server handle and cache are shared, history and settings are not."""
        copied: BackendLM = self.copy()
        return copied

    def dump_state(self) -> dict[str, Any]:
        """Return the model name and the profile's name only: no address, no key (our manifest holds the rest)."""
        return {"model": self.model, "model_type": self.model_type, "cache": False, "num_retries": self.num_retries}

    def scrub(self, text: str) -> str:
        """Return ``text`` without our key."""
        return text.replace(self._secret, "***") if self._secret else text


def make_lm(
    backend: str,
    overrides: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    reply_cache: ReplyCache | None = None,
) -> BackendLM:
    """Build the language model of a backend profile.

    Args:
        backend: Profile name (`pace_dspy.backends.profiles`).
        overrides: Profile fields to change, such as ``model`` or ``base_url``.
        environ: Where keys and addresses are read from; the process environment by default.
        reply_cache: Cache of validated replies; none by default.

    Returns:
        A ready ``dspy.LM``. ``local`` starts its server on the first call.

    Raises:
        ConfigError: Unknown profile or override.
        MissingKeyError: A needed key or address is not set; names the variable.
        MissingExtraError: ``local`` without its extra.
    """
    profile = get_profile(backend, overrides)
    if profile.name == "local":
        from pace_dspy.backends.local import make_local_lm

        return make_local_lm(profile, reply_cache=reply_cache)
    connection = resolve_connection(profile, os.environ if environ is None else environ)
    options: dict[str, Any] = {"api_key": connection.api_key, "timeout": profile.timeout_s}
    if connection.base_url:
        options["api_base"] = connection.base_url
    return BackendLM(
        profile,
        connection.model,
        identity=identity(profile, connection),
        reply_cache=reply_cache,
        secret=connection.api_key,
        engine="lm15",
        **options,
    )


@contextmanager
def use_backend(backend: str | dspy.LM, overrides: Mapping[str, str] | None = None) -> Iterator[dspy.LM]:
    """Make a backend the model of every DSPy module called inside the ``with`` block.

    Args:
        backend: Profile name, or a ready language model.
        overrides: Profile fields to change.

    Yields:
        The language model.
    """
    lm = make_lm(backend, overrides) if isinstance(backend, str) else backend
    with dspy.context(lm=lm):
        yield lm


def require_lm(lm: object) -> None:
    """Refuse to go on without a language model.

    Raises:
        ConfigError: No model is set; says how to set one.
    """
    if lm is None:
        raise ConfigError(
            "no language model is set: call inside `with pace_dspy.use_backend('local'):` or use dspy.configure(lm=...)"
        )


_MAPPING: tuple[tuple[type[Exception], type[BackendError], str], ...] = (
    (dspy_errors.ContextWindowExceededError, WindowError, "Use a backend with a larger window, or fewer candidates."),
    (dspy_errors.LMAuthError, AuthError, "Check the key and its permissions."),
    (dspy_errors.LMBillingError, QuotaError, "Check the account's credit."),
    (dspy_errors.LMRateLimitError, RateLimitError, "Lower --concurrency, or run again later: finished work is kept."),
    (dspy_errors.LMTimeoutError, BackendTimeoutError, "Check that the server answers; raise timeout_s if it is slow."),
    (dspy_errors.LMTransportError, BackendTimeoutError, "Check the address and that the server is running."),
    (dspy_errors.LMInvalidRequestError, BadRequestError, "Check the model name and the profile's parameters."),
    (dspy_errors.LMUnsupportedFeatureError, BadRequestError, "Check the profile's parameters."),
    (dspy_errors.LMNotConfiguredError, MissingKeyError, "Set the key's environment variable."),
    (dspy_errors.LMServerError, ServerError, "The server failed; run again later: finished work is kept."),
)


def map_error(exc: Exception, lm: Any) -> BackendError:
    """Return our typed error for a DSPy error (raise it ``from`` the original)."""
    kind, remedy = next(
        ((ours, remedy) for theirs, ours, remedy in _MAPPING if isinstance(exc, theirs)), (BackendError, None)
    )
    text = str(getattr(exc, "message", "") or exc)
    profile = getattr(lm, "profile", None)
    if isinstance(lm, BackendLM):
        text = lm.scrub(text)
        exc.args = tuple(lm.scrub(arg) if isinstance(arg, str) else arg for arg in exc.args)
    problem = " ".join(text.split())[:400].rstrip(".")
    status = getattr(exc, "status", None)
    if status and str(status) not in problem:
        problem = f"HTTP {status}: {problem}"
    return kind(problem, backend=getattr(profile, "name", None), model=str(lm.model), remedy=remedy)
