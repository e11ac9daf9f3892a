"""`BackendLM`: a ``dspy.LM`` that knows its profile, retries by our rules, and holds no key."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import dspy
from dspy.utils.exceptions import LMConfigurationError

from pace_dspy.backends.batch_profile import BATCH
from pace_dspy.backends.cache import ReplyCache
from pace_dspy.backends.failures import map_error
from pace_dspy.backends.profiles import PROFILES, BackendProfile, get_profile, identity, resolve_connection
from pace_dspy.backends.remote import RemoteEngine
from pace_dspy.backends.retry import with_retries
from pace_dspy.backends.usage import record_retry
from pace_dspy.errors import ConfigError

__all__ = ["BackendLM", "TokenCounter", "make_lm", "map_error", "require_lm", "use_backend"]

TokenCounter = Callable[[str], int]
_SHAPES_REPLIES = ("temperature", "schema_form", "additional_properties", "reasoning_effort", "thinking_tokens")
"""Profile fields that change what is replied; the others (timeouts, slots, prices) may change while a run goes on."""


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
        seed: int | None = None,
        **options: Any,
    ) -> None:
        if seed is not None and profile.supports_seed:
            options["seed"] = seed
        # num_retries=0: DSPy makes one attempt; `__call__` makes the others.
        super().__init__(model, temperature=profile.temperature, cache=False, num_retries=0, **options)
        self.profile = profile
        self.identity = identity
        self.token_counter = token_counter
        self.reply_cache = reply_cache

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Ask as ``dspy.LM`` does, again after failures that can pass; each retry is counted.

        Raises:
            LMError: The failure, when asking again is wrong or did not help.
        """
        return with_retries(partial(super().__call__, *args, **kwargs), self.profile.num_retries, record_retry)

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """Run `__call__` in a worker thread."""
        return await asyncio.to_thread(self.__call__, *args, **kwargs)

    def warm_up(self) -> None:
        """Make the first call as fast as the others: fetch weights, start a server. Nothing to do for a remote one."""

    def __deepcopy__(self, memo: dict[int, Any]) -> BackendLM:
        """Return a light copy: clients, server handle and cache are shared, history and settings are not."""
        copied: BackendLM = self.copy()
        return copied

    def dump_state(self) -> dict[str, Any]:
        """Return the model name and the profile's name only: no address, no key (our manifest holds the rest)."""
        return {"model": self.model, "model_type": self.model_type, "cache": False, "num_retries": 0}

    @property
    def label(self) -> str:
        """Who answers, and how, in one line for manifests: profile, model, address, and each changed reply setting."""
        table = PROFILES[self.profile.name]
        changed = [
            f"{name}={getattr(self.profile, name)}"
            for name in _SHAPES_REPLIES
            if getattr(self.profile, name) != getattr(table, name)
        ]
        return ", ".join([f"{self.profile.name}: {self.identity}", *changed])

    def scrub(self, text: str) -> str:
        """Return ``text`` without our key."""
        return self.engine.scrub(text) if isinstance(self.engine, RemoteEngine) else text


def make_lm(
    backend: str,
    overrides: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    reply_cache: ReplyCache | None = None,
    seed: int | None = None,
) -> BackendLM:
    """Build the language model of a backend profile.

    Args:
        backend: Profile name (`pace_dspy.backends.profiles`).
        overrides: Profile fields to change, such as ``model`` or ``base_url``.
        environ: Where keys and addresses are read from; the process environment by default.
        reply_cache: Cache of validated replies; none by default.
        seed: Of the sampling; sent with every request where the profile supports one.

    Returns:
        A ready ``dspy.LM``. ``local`` starts its server on the first call; ``batch`` needs a folder of rounds first
        (`pace_dspy.batch.rounds.open_rounds`) and uses no reply cache.

    Raises:
        ConfigError: Unknown profile or override.
        MissingKeyError: A needed key or address is not set; names the variable.
        MissingExtraError: ``local`` without its extra.
    """
    profile = get_profile(backend, overrides)
    if profile.name == "local":
        from pace_dspy.backends.local import make_local_lm

        return make_local_lm(profile, reply_cache=reply_cache, seed=seed)
    try:
        if profile.name == BATCH:
            from pace_dspy.batch.lm import make_batch_lm

            return make_batch_lm(profile, seed=seed)
        connection = resolve_connection(profile, os.environ if environ is None else environ)
        return BackendLM(
            profile,
            connection.model,
            identity=identity(profile, connection),
            reply_cache=reply_cache,
            seed=seed,
            engine=RemoteEngine(profile, connection),
        )
    except LMConfigurationError as exc:
        raise ConfigError(
            f"backend {profile.name}: temperature={profile.temperature:g} is not taken by {profile.model}; "
            "use temperature=none"
        ) from exc


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
