"""The hand-made table's notation: how an expression is written in ``expressions.json``."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

from pace_dspy.temporal import Clock, Interval, Recurrence, TimeExpression, find_times

ROWS = json.loads((Path(__file__).parent / "expressions.json").read_text(encoding="utf-8"))
_DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


def found(row: list) -> list[str]:
    """Parse a row's text as its mode says and write down what was found."""
    mode, day, text, _ = row
    date = dt.date.fromisoformat(day) if day else None
    if mode == "undated":
        return [shown(x) for x in find_times(text, None, near=date)]
    return [shown(x) for x in find_times(text, date, prefer="future" if mode == "req" else "nearest")]


def shown(x: TimeExpression) -> str:
    if x.impossible:
        return "impossible"
    if x.duration is not None:
        minutes = int(x.duration.total_seconds() // 60)
        return f"{minutes} min" if minutes < 1440 else f"{x.duration.days} d"
    if x.intervals:
        return " || ".join(interval(i) for i in x.intervals)
    if x.recurrence:
        return recurrence(x.recurrence) + (" amb" if x.ambiguous else "")
    return " || ".join(clock(c) for c in x.clocks) if x.kind == "time" else "?"


def interval(i: Interval) -> str:
    midnight = dt.time()
    if i.start is None:
        return f"..{i.end - dt.timedelta(days=1):%Y-%m-%d}" if i.end.time() == midnight else f"..{i.end:%Y-%m-%d %H:%M}"
    if i.end is None:
        return f"{i.start:%Y-%m-%d}.." if i.start.time() == midnight else f"{i.start:%Y-%m-%d %H:%M}.."
    if i.granularity not in ("minute", "daypart"):
        if i.start.time() != midnight or i.end.time() != midnight:
            return f"{i.start:%Y-%m-%d %H:%M}..{i.end:%Y-%m-%d %H:%M}"
        last = (i.end - dt.timedelta(days=1)).date()
        return f"{i.start:%Y-%m-%d}" + ("" if last == i.start.date() else f"/{last}")
    if i.end - i.start == dt.timedelta(minutes=1):
        return f"{i.start:%Y-%m-%d %H:%M}"
    if i.end - i.start > dt.timedelta(days=1):
        return f"{i.start:%Y-%m-%d %H:%M}..{i.end:%Y-%m-%d %H:%M}"
    end = "24:00" if i.end.time() == midnight else f"{i.end:%H:%M}"
    return f"{i.start:%Y-%m-%d %H:%M}-{end}"


def clock(c: Clock) -> str:
    if c.point:
        return f"@{c.start:%H:%M}"
    if c.start is None:
        return f"@..{c.end:%H:%M}"
    return f"@{c.start:%H:%M}.." if c.end is None else f"@{c.start:%H:%M}-{c.end:%H:%M}"


def recurrence(r: Recurrence) -> str:
    parts = [r.frequency + (f"/{r.interval}" if r.interval > 1 else "")]
    parts += [",".join(map(str, r.months))] if r.months else []
    parts += [",".join(_DAYS[d] for d in r.weekdays)] if r.weekdays else []
    parts += [",".join(map(str, r.ordinals))] if r.ordinals else []
    parts += ["day " + ",".join(map(str, r.month_days))] if r.month_days else []
    parts += [f"from {r.anchor}"] if r.anchor else []
    parts += [f"since {r.since}"] if r.since else []
    parts += [f"until {r.until}"] if r.until else []
    parts += [clock(r.clock)] if r.clock else []
    return " ".join(parts)
