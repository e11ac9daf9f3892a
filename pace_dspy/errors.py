"""Every error a user can meet: one line that says what is wrong, where, what is allowed, and what to do."""

from __future__ import annotations


class PaceError(Exception):
    """Base of all errors raised on purpose by this package.

    Attributes:
        exit_code: Exit status of the command line: 1 (the work failed) or 2 (wrong use or bad data).
    """

    exit_code = 1


class ConfigError(PaceError, ValueError):
    """A setting or argument is not allowed; the message names it and what is allowed."""

    exit_code = 2


class DataError(PaceError, ValueError):
    """A data file holds something we refuse.

    Args:
        problem: What is wrong.
        file: The file (relative or as given by the user).
        row: Row number from 1, or an id that finds the row.
        field: The field or column.
        value: The value received (shortened in the message).
        remedy: What to do about it.
    """

    exit_code = 2

    def __init__(
        self,
        problem: str,
        *,
        file: str | None = None,
        row: int | str | None = None,
        field: str | None = None,
        value: object = None,
        remedy: str | None = None,
    ) -> None:
        self.problem, self.file, self.row, self.field, self.value, self.remedy = (
            problem,
            file,
            row,
            field,
            value,
            remedy,
        )
        where = ", ".join(
            part
            for part in (
                file or "",
                f"row {row}" if row is not None else "",
                f"field {field!r}" if field else "",
                f"value {shortened(value)}" if value is not None else "",
            )
            if part
        )
        message = f"{where}: {problem}" if where else problem
        super().__init__(f"{message}. {remedy}" if remedy else message)


class NoFactsError(PaceError):
    """The knowledge base is empty: a decision without facts would be invented, so it is refused."""


class IndexMismatchError(PaceError):
    """A stored index does not belong to these texts, this embedder or this version."""


class MissingExtraError(PaceError, ImportError):
    """An optional dependency is missing; the message holds the pip line."""

    exit_code = 2

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"{module} is not installed. Run: pip install 'pace-dspy[{extra}]'")


class WorkerLostError(PaceError):
    """A worker process ended, or could not be reached, while it had a request; the request can be run again."""


class WorkerStartError(PaceError):
    """A worker could not be started, or cannot do the work; says where and why."""


class WeightsError(PaceError):
    """Model weights could not be had, or their SHA-256 is not the pinned one."""


class BackendError(PaceError):
    """A language-model backend failed. A backend failure is never a wrong answer.

    Args:
        problem: What happened.
        backend: Profile name.
        model: Model asked for.
        parameter: The parameter at fault, when known.
        remedy: What to do.
    """

    def __init__(
        self,
        problem: str,
        *,
        backend: str | None = None,
        model: str | None = None,
        parameter: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.problem, self.backend, self.model, self.parameter, self.remedy = problem, backend, model, parameter, remedy
        where = "/".join(part for part in (backend, model) if part)
        message = f"backend {where}: {problem}" if where else problem
        if parameter:
            message += f" (parameter {parameter!r})"
        super().__init__(f"{message}. {remedy}" if remedy else message)


class MissingKeyError(BackendError):
    """The environment variable with the key (or address) is not set."""

    exit_code = 2


class AuthError(BackendError):
    """The backend refused our key."""


class QuotaError(BackendError):
    """The account has no credit left."""


class RateLimitError(BackendError):
    """Still rate limited after obeying Retry-After."""


class BackendTimeoutError(BackendError):
    """No answer in time, or the server could not be reached."""


class WindowError(BackendError):
    """The prompt and the reserved reply do not fit the backend's context window."""


class BadRequestError(BackendError):
    """The backend rejected the request (HTTP 400-class); never retried."""


class BadSettingError(BadRequestError, ConfigError):
    """The backend rejected something that goes with every request: its address, the model, or a parameter.

    Being a `ConfigError` too, it ends a run at once: every further request would meet it.
    """


class ServerError(BackendError):
    """The backend failed (HTTP 500-class) on every retry."""


class ReplyError(BackendError):
    """The reply stayed unusable after the repair turn; the stage falls back to its defined result.

    Args:
        problem: Why the reply was refused.
        raw: The raw reply, for the trace (shortened by the caller before it is stored).
    """

    def __init__(self, problem: str, *, raw: str = "", backend: str | None = None, model: str | None = None) -> None:
        self.raw = raw
        super().__init__(problem, backend=backend, model=model)


class PendingReplyError(PaceError):
    """The ``batch`` backend has no reply to this prompt yet; the prompt waits in a round. Not a failure."""


def shortened(value: object, limit: int = 80) -> str:
    """Return a value as messages show it: its ``repr``, cut to ``limit`` characters."""
    try:
        text = repr(value)
    except RecursionError:
        text = f"a deeply nested {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 3] + "..."
