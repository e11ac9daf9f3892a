"""The trail of one request through one run: what every stage took in and gave out, gold facts marked. Ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pace_dspy.evaluation.funnel import FactFate, StageName, funnel_of_row
from pace_dspy.evaluation.report.evidence_tables import FATE_TITLES, STAGE_TITLES
from pace_dspy.evaluation.report.texts import Texts
from pace_dspy.evaluation.scores import Row

Tone = Literal["good", "bad", "neutral"]


MAX_LIST = 50
"""Facts of one list that are shown; of a longer one (full-kb) the first ones and every gold fact."""


@dataclass(frozen=True)
class FactLine:
    """One fact in a list: its text (``None`` when the data is not at hand), marks, and a note such as its score."""

    doc_id: str
    text: str | None
    gold: bool = False
    cited: bool = False
    note: str = ""


@dataclass(frozen=True)
class FactList:
    """A titled list of facts, best first."""

    title: str
    facts: tuple[FactLine, ...]

    @property
    def n_gold(self) -> int:
        """Gold facts in it."""
        return sum(fact.gold for fact in self.facts)

    @property
    def shown(self) -> tuple[tuple[int, FactLine], ...]:
        """Rank from 1 and fact: the first `MAX_LIST`, and every gold or cited fact."""
        ranked = enumerate(self.facts, start=1)
        return tuple((rank, fact) for rank, fact in ranked if rank <= MAX_LIST or fact.gold or fact.cited)


@dataclass(frozen=True)
class ViewTrail:
    """One view and what each retriever returned for it."""

    number: int
    kind: str
    text: str
    hits: tuple[FactList, ...]


@dataclass(frozen=True)
class LookTrail:
    """One round of the second look: what it selected, and its follow-up queries with their hits. Ours."""

    selected: FactList | None
    follow_ups: tuple[ViewTrail, ...]


@dataclass(frozen=True)
class Chip:
    """A short result with its tone."""

    text: str
    tone: Tone = "neutral"


@dataclass(frozen=True)
class RunTrail:
    """One request in one run, in the order of the paper's main figure; empty where the method has no such stage."""

    run: str
    chips: tuple[Chip, ...]
    error: str | None
    cues: tuple[Mapping[str, Any], ...] = ()
    views: tuple[ViewTrail, ...] = ()
    fused: FactList | None = None
    seeds: FactList | None = None
    channels: tuple[FactList, ...] = ()
    hops: tuple[FactList, ...] = ()
    looks: tuple[LookTrail, ...] = ()
    derived: tuple[FactLine, ...] = ()
    evidence: FactList | None = None
    gold: tuple[tuple[FactLine, Chip, str], ...] = ()
    decision: Chip | None = None
    response: str | None = None
    verdict: Chip | None = None
    verdict_reason: str | None = None
    notes: tuple[str, ...] = ()
    cost: str = ""


def run_trail(run: str, row: Row, texts: Texts, ran: Iterable[StageName]) -> RunTrail:
    """Return the trail of one row.

    Args:
        run: Name of the run.
        row: Its row.
        texts: Texts of the facts.
        ran: Stages of the run, so that an empty list of one counts as a loss.
    """
    if row["error"] is not None:
        error = f"{row['error'].get('kind', 'error')}: {row['error'].get('message', '')}"
        return RunTrail(run, (Chip("failed", "bad"),), error)
    lines = _Lines(row, texts)
    trace = row.get("trace") or {}
    fates = funnel_of_row(row, tuple(ran)).fates
    return RunTrail(
        run,
        chips=_chips(row),
        error=None,
        cues=tuple(trace.get("cues") or ()),
        views=tuple(_views(trace, lines)),
        fused=lines.scored("Fused list", trace.get("fused")),
        seeds=lines.plain("Seeds", trace.get("seeds")),
        channels=tuple(_channels(trace, lines)),
        hops=tuple(_hops(trace.get("pool") or (), lines)),
        looks=tuple(_looks(trace, lines)),
        derived=tuple(FactLine(", ".join(note["doc_ids"]), note["text"]) for note in trace.get("notes") or ()),
        evidence=lines.plain("Evidence", row["evidence"], best_first=True),
        gold=tuple((lines.line(fate.doc_id), _fate_chip(fate), _fate_text(fate)) for fate in fates),
        decision=_decision(row),
        response=row.get("response"),
        verdict=_verdict(row),
        verdict_reason=_verdict_reason(row),
        notes=tuple(_notes(trace)),
        cost=_cost(trace),
    )


class _Lines:
    """Makes fact lines of one row."""

    def __init__(self, row: Row, texts: Texts) -> None:
        self.case_id, self.texts = row["case_id"], texts
        self.gold, self.cited = frozenset(row["gold_doc_ids"]), frozenset(row.get("cited") or ())

    def line(self, doc_id: str, note: str = "", *, cited: bool = False) -> FactLine:
        text = self.texts.facts.get((self.case_id, doc_id))
        return FactLine(doc_id, text, doc_id in self.gold, cited and doc_id in self.cited, note)

    def plain(self, title: str, ids: Sequence[str] | None, *, best_first: bool = False) -> FactList | None:
        if not ids:
            return None
        return FactList(title, tuple(self.line(doc_id, cited=best_first) for doc_id in ids))

    def scored(self, title: str, hits: Sequence[Mapping[str, Any]] | None) -> FactList | None:
        if not hits:
            return None
        return FactList(title, tuple(self.line(hit["doc_id"], _hit_note(hit)) for hit in hits))


def _hit_note(hit: Mapping[str, Any]) -> str:
    score = f"{hit['score']:.4f}" if hit.get("sources") else f"{hit['score']:.2f}"
    views = ", ".join(str(number + 1) for number in hit.get("views") or ())
    return f"{score}, view {views}" if views else score


def _views(trace: Mapping[str, Any], lines: _Lines) -> Iterable[ViewTrail]:
    hits = trace.get("hits") or ()
    for number, view in enumerate(trace.get("views") or ()):
        found = hits[number] if number < len(hits) else {}
        lists = (lines.scored(name.capitalize(), found.get(name)) for name in ("dense", "sparse"))
        yield ViewTrail(number + 1, view["kind"], view["text"], tuple(one for one in lists if one is not None))


def _channels(trace: Mapping[str, Any], lines: _Lines) -> Iterable[FactList]:
    for channel in trace.get("channels") or ():
        found = lines.plain(channel["channel"].capitalize(), channel["doc_ids"])
        if found is not None:
            yield found


def _hops(pool: Sequence[Mapping[str, Any]], lines: _Lines) -> Iterable[FactList]:
    hops: dict[int, list[FactLine]] = {}
    for fact in pool:
        hops.setdefault(int(fact["hop"]), []).append(lines.line(fact["doc_id"], fact.get("via") or ""))
    for hop, facts in sorted(hops.items()):
        if hop:
            yield FactList(f"Hop {hop}", tuple(facts))


def _looks(trace: Mapping[str, Any], lines: _Lines) -> Iterable[LookTrail]:
    for look in trace.get("looks") or ():
        queries = look.get("follow_ups") or ()
        views = {"views": [{"kind": "follow-up", "text": text} for text in queries], "hits": look.get("hits")}
        yield LookTrail(lines.plain("Selected", look.get("selected")), tuple(_views(views, lines)))


def _fate_chip(fate: FactFate) -> Chip:
    tones: dict[str, Tone] = {"cited": "good", "in_evidence": "good", "not_cited": "neutral"}
    return Chip(_title(fate.lost_at), tones.get(fate.lost_at, "bad"))


def _fate_text(fate: FactFate) -> str:
    parts = []
    if fate.trimmed:
        parts.append("its prompt had no room")
    if fate.views:
        parts.append(f"found by view {', '.join(str(number + 1) for number in fate.views)}")
    if fate.hop:
        parts.append(f"reached at hop {fate.hop}")
    if fate.recovered_by and fate.recovered_from:
        parts.append(
            f"{_title(fate.recovered_from)} before, then {STAGE_TITLES.get(fate.recovered_by, fate.recovered_by)}"
        )
    return "; ".join(parts)


def _title(fate: str) -> str:
    return FATE_TITLES.get(fate, fate)


def _chips(row: Row) -> tuple[Chip, ...]:
    gold = set(row["gold_doc_ids"])
    found = len(gold & set(row["evidence"]))
    tone: Tone = "good" if found == len(gold) else "bad" if not found else "neutral"
    evidence = (Chip(f"{found} of {len(gold)} gold facts", tone),) if gold else ()
    return (*evidence, *(chip for chip in (_decision(row), _verdict(row)) if chip is not None))


def _decision(row: Row) -> Chip | None:
    if row.get("decision") is None:
        usage = (row.get("trace") or {}).get("usage") or ()
        return Chip("undecided") if any(stage["stage"] == "answerer" for stage in usage) else None
    name = row["decision"].replace("_", "-")
    if row.get("label") is None:
        return Chip(name)
    right = row["decision"] == row["label"]
    return Chip(f"{name}, {'right' if right else 'wrong'}", "good" if right else "bad")


def _verdict(row: Row) -> Chip | None:
    if row.get("verdict") is not None:
        return Chip(row["verdict"].replace("_", " "), "good" if row["verdict"] == "PASS" else "bad")
    return Chip("judge error") if row.get("judge_error") is not None else None


def _verdict_reason(row: Row) -> str | None:
    error = row.get("judge_error")
    if row.get("verdict") is None and error is not None:
        return f"{error.get('kind', 'error')}: {error.get('message', '')}"
    return row.get("verdict_reason")


def _notes(trace: Mapping[str, Any]) -> Iterable[str]:
    for fallback in trace.get("fallbacks") or ():
        yield f"Fallback of {fallback['stage']}: {fallback['reason']}"
    for trim in trace.get("trims") or ():
        yield f"Trimmed for {trim['stage']}: {trim['shown']} of {trim['offered']} facts fit the window"


def _cost(trace: Mapping[str, Any]) -> str:
    usage = trace.get("usage") or ()
    calls, read, wrote = (
        sum(stage[name] for stage in usage) for name in ("calls", "prompt_tokens", "completion_tokens")
    )
    seconds = f"{trace.get('total_ms', 0.0) / 1000:.2f} s"
    return f"{seconds}, {calls} model calls, {read:,} tokens read, {wrote:,} written" if usage else seconds
