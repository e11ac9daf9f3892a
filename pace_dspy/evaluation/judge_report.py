"""What judging says: rates with their n, judge errors apart, two judges beside each other, and human labels. Ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pace_dspy.errors import DataError
from pace_dspy.evaluation.agreement import RaterComparison, compare_raters, read_human_labels
from pace_dspy.evaluation.metrics import VerdictScores, verdict_metrics
from pace_dspy.evaluation.samples import sample_of
from pace_dspy.evaluation.scores import VERDICTS, Grouped, Key, Row, finished, grouped, key_of
from pace_dspy.evaluation.statistics import Interval, bootstrap_interval
from pace_dspy.types import LABELS

PAPER_JUDGE_HUMAN = 0.935
"""Agreement of judge and humans. Paper: judge validation."""

PAPER_LABEL_HUMAN = 0.933
"""Agreement of gold labels and humans. Paper: label validation."""


@dataclass(frozen=True)
class HumanLabels:
    """Human labels of requests.

    Attributes:
        kind: ``verdict`` (PASS / WRONG_RATIONALE / FAIL, checks the judge) or ``label`` (conflict / non_conflict,
            checks the gold labels).
        labels: By request.
    """

    kind: str
    labels: Mapping[Key, str]


@dataclass(frozen=True)
class JudgeReport:
    """Scores of one judge over the rows of one run.

    Attributes:
        judge: Who judged.
        scores: Overall, by label, by situation type.
        pass_rate: PASS among the judged, with a bootstrap interval over personas.
        n_unanswered: Rows without response or decision; they were not judged.
        second: Agreement with the second judge, who is ``second_judge``.
        human: Agreement with human labels; the humans are the second rater.
        human_kind: What the human labels check (`HumanLabels.kind`).
    """

    judge: str
    scores: Grouped[VerdictScores]
    pass_rate: Interval
    n_unanswered: int
    second_judge: str | None = None
    second_scores: Grouped[VerdictScores] | None = None
    second: RaterComparison | None = None
    human: RaterComparison | None = None
    human_kind: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        plain = asdict(self)
        for name in ("second", "human"):
            compared: RaterComparison | None = getattr(self, name)
            if compared is not None:
                plain[name]["agreement"] = compared.agreement.to_dict()
        return plain

    def to_text(self) -> dict[str, str]:
        """Return printable name-value pairs."""
        overall, interval = self.scores.overall, self.pass_rate
        text = {
            "judge": self.judge,
            "judged": f"{overall.n}, judge errors {_counted(overall.n_judge_errors, overall.judge_error_reasons)}",
            "not judged": f"{overall.n_unjudged}, of which without response or decision {self.n_unanswered}; "
            f"failed requests {_counted(overall.n_failed, overall.reasons)}",
            "overall": _rates(overall),
            "PASS, 95% interval": f"{_share(interval.low)} to {_share(interval.high)} over {interval.n_cases} personas",
            "with judge errors": f"PASS {_share(overall.rates_with_judge_errors['PASS'])} of judged and judge errors; "
            f"{_share(overall.pass_rate_failures_counted_as_wrong)} with failed requests counted as wrong",
        }
        for groups in (self.scores.by_label, self.scores.by_type):
            text |= {name: _rates(scores) for name, scores in groups.items()}
        if self.second is not None and self.second_scores is not None:
            text["second judge"] = f"{self.second_judge}"
            text["second judge, overall"] = _rates(self.second_scores.overall)
            text["agreement of the judges"] = _agreement(self.second)
        if self.human is not None:
            paper = PAPER_JUDGE_HUMAN if self.human_kind == "verdict" else PAPER_LABEL_HUMAN
            who = "judge" if self.human_kind == "verdict" else "gold label"
            text[f"agreement of {who} and humans"] = f"{_agreement(self.human)}; paper {paper:.3f}"
        return text


def judge_report(
    rows: Sequence[Row], judge: str, second: tuple[str, Sequence[Row]] | None = None, human: HumanLabels | None = None
) -> JudgeReport:
    """Score the verdicts of a run.

    Args:
        rows: Rows with the verdicts of ``judge``.
        judge: Its identity.
        second: Identity of a second judge and the rows with its verdicts.
        human: Human labels.
    """
    compared = None
    if human is not None:
        field = "verdict" if human.kind == "verdict" else "label"
        compared = compare_raters({key_of(row): row.get(field) for row in rows}, human.labels)
    return JudgeReport(
        judge,
        grouped(rows, verdict_metrics),
        bootstrap_interval(sample_of(rows, "pass", judge)),
        sum(not (row["response"] and row["decision"]) for row in finished(rows).rows),
        second_judge=second[0] if second else None,
        second_scores=grouped(second[1], verdict_metrics) if second else None,
        second=compare_raters(_verdicts(rows), _verdicts(second[1])) if second else None,
        human=compared,
        human_kind=human.kind if human else None,
    )


def read_human(path: Path) -> HumanLabels:
    """Read human labels: verdicts, or gold labels if every value is one.

    Raises:
        DataError: See `pace_dspy.evaluation.agreement.read_human_labels`.
    """
    try:
        return HumanLabels("verdict", read_human_labels(path))
    except DataError as exc:
        if exc.field != "verdict" or exc.value is None:
            raise
        try:
            return HumanLabels("label", read_human_labels(path, LABELS))
        except DataError as other:
            both = f"Allowed: {', '.join(VERDICTS)} to check the judge, or {', '.join(LABELS)} to check the gold labels"
            bad = max(exc, other, key=lambda error: int(error.row or 0))
            raise DataError(
                bad.problem, file=bad.file, row=bad.row, field=bad.field, value=bad.value, remedy=both
            ) from exc


def require_match(human: HumanLabels, asked: Iterable[Key], path: Path) -> None:
    """Refuse human labels of which none belongs to the requests of a run.

    Args:
        human: The labels.
        asked: Requests they are compared on.
        path: File of the labels, for the message.

    Raises:
        DataError: No label matches.
    """
    known = set(asked)
    if known & human.labels.keys():
        return
    unmatched = ", ".join("/".join(key) for key in list(human.labels)[:3])
    example = f"as in {'/'.join(min(known))}" if known else "but the run has none to compare"
    raise DataError(
        f"none of its {len(human.labels)} requests is one that this run compares: {unmatched}",
        file=str(path),
        remedy=f"Give case_id and query_id of the run's results.jsonl, {example}",
    )


def _verdicts(rows: Sequence[Row]) -> dict[Key, str | None]:
    return {key_of(row): row.get("verdict") for row in rows}


def _rates(scores: VerdictScores) -> str:
    shares = ", ".join(f"{verdict} {_share(scores.rates[verdict])}" for verdict in VERDICTS)
    return f"{shares} (n={scores.n}, judge errors {scores.n_judge_errors})"


def _agreement(compared: RaterComparison) -> str:
    found = compared.agreement
    return f"{_share(found.raw)}, kappa {_share(found.kappa)} (n={found.n})"


def _counted(n: int, reasons: Mapping[str, int]) -> str:
    return f"{n} {', '.join(f'{name} {count}' for name, count in reasons.items())}".rstrip()


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
