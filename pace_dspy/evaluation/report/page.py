"""The page: Jinja templates with everything escaped, styles inline, no script, nothing fetched. Ours."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from pace_dspy.evaluation.report.content import Section
from pace_dspy.evaluation.report.requests import PersonaTrails
from pace_dspy.evaluation.report.runs import ReportRun

_CONTROL = {code: "�" for code in (*range(9), 11, 12, *range(14, 32), 127)}


def render(
    runs: Sequence[ReportRun], sections: Sequence[Section], notes: Sequence[str], personas: Sequence[PersonaTrails]
) -> str:
    """Return the page.

    Texts of facts, requests and models are data: Jinja escapes all of them, each stands in its own ``bdi`` so that
    it cannot turn the direction of the text around it, and the page's policy forbids scripts and requests.
    """
    rows = runs[0].rows
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            title=_title(runs),
            style=resources.files(__package__).joinpath("templates", "style.css").read_text(encoding="utf-8"),
            runs=runs,
            n_requests=len(rows),
            n_personas=len({row["case_id"] for row in rows}),
            sections=sections,
            notes=notes,
            personas=personas,
        )
    )
    return page.translate(_CONTROL).encode("utf-8", "replace").decode("utf-8")


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__ or "", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["words"] = _words
    return environment


def _words(value: Any) -> str:
    """Return a name as words: ``non_conflict`` as ``non-conflict``."""
    return str(value).replace("_", "-")


def _title(runs: Sequence[ReportRun]) -> str:
    what = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    return f"{what} on {runs[0].manifest.dataset}"
