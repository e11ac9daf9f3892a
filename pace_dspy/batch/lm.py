"""The ``batch`` backend as a ``dspy.LM``: a transport that answers from files, below the boundary of every backend.

Prompts are built, and replies read and checked, by the same code as on a live server: only the bytes come from
`pace_dspy.batch.folder` instead of a socket.
"""

from __future__ import annotations

import json
from typing import Any

import dspy
from dspy._vendor.lm15.transports import TransportRequest, TransportResponse
from dspy.utils.exceptions import LMError

from pace_dspy.backends.lm import BackendLM
from pace_dspy.backends.profiles import BackendProfile, resolve_connection
from pace_dspy.backends.remote import RemoteEngine
from pace_dspy.backends.transport import BoundedTransport
from pace_dspy.batch.folder import BatchFolder
from pace_dspy.errors import ConfigError, PaceError


class BatchTransport(BoundedTransport):
    """Sends nothing.

    Attributes:
        folder: Where replies are known from and prompts go to; ``None`` until the command says so.
    """

    def __init__(self, timeout_s: float) -> None:
        super().__init__(timeout_s, trust_env=False)
        self.folder: BatchFolder | None = None

    def stream(self, request: TransportRequest) -> TransportResponse:
        """Return what the files say.

        Raises:
            PendingReplyError: Nothing yet.
            BackendError: No reply came in as many rounds as are allowed.
            ConfigError: There is no folder.
        """
        reply = required(self.folder).answer(json.loads(request.body))
        self.note_refusal(reply.status, reply.body)
        return TransportResponse(
            status=reply.status,
            reason="",
            headers=[("Content-Type", "application/json")],
            http_version="HTTP/1.1",
            chunks=iter([reply.body]),
            release=lambda _: None,
        )


class BatchLM(BackendLM):
    """A language model whose replies come in rounds. It has no reply cache: its folder is one."""

    transport: BatchTransport

    def warm_up(self) -> None:
        """Refuse to be used where there are no rounds.

        Raises:
            ConfigError: The command has no folder for them.
        """
        required(self.transport.folder)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Ask once; a failure is asked again in the next round, not now.

        Raises:
            PendingReplyError: There is no reply yet.
            LMError: The server refused.
            ConfigError: The command has no folder of rounds.
        """
        self.warm_up()
        try:
            return dspy.LM.__call__(self, *args, **kwargs)
        except LMError as exc:
            if isinstance(exc.__cause__, PaceError):  # ours, which DSPy takes for an engine's bug
                raise exc.__cause__ from None
            raise

    def attach(self, folder: BatchFolder) -> None:
        """Answer from this folder."""
        self.transport.folder = folder


def required(folder: BatchFolder | None) -> BatchFolder:
    """Return the folder.

    Raises:
        ConfigError: There is none.
    """
    if folder is None:
        raise ConfigError(
            "backend batch works in rounds, with `pace-dspy run` and `pace-dspy evaluate` in one process; "
            "give another backend here"
        )
    return folder


def make_batch_lm(profile: BackendProfile, *, seed: int | None = None) -> BatchLM:
    """Build the language model of the ``batch`` profile.

    Args:
        profile: From `pace_dspy.backends.profiles.get_profile`.
        seed: Of the sampling; written into every prompt where the profile supports one.

    Raises:
        LMConfigurationError: A temperature that the model does not take.
    """
    connection = resolve_connection(profile, {})
    transport = BatchTransport(profile.timeout_s)
    lm = BatchLM(
        profile,
        connection.model,
        identity=f"{connection.model}@batch",
        seed=seed,
        engine=RemoteEngine(profile, connection, transport=transport),
    )
    lm.transport = transport
    return lm
