"""The reference date as prompts show it: with its weekday and the days around it (models miscount weekdays)."""

from __future__ import annotations

import datetime as dt

DAYS_BEFORE = 2
DAYS_AFTER = 12
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
"""Fixed names: ``strftime`` would follow the locale."""


def today_line(reference_date: dt.date) -> str:
    """Return the reference date with a small calendar; never reads the clock or the locale.

    Args:
        reference_date: The day the request is made.

    Returns:
        One line such as ``Wednesday 2026-03-18. Days: Mon 2026-03-16, Tue 17, Wed 18 (today), ...``; the month is
        written out where it changes.
    """
    days = [reference_date + dt.timedelta(days=offset) for offset in range(-DAYS_BEFORE, DAYS_AFTER + 1)]
    shown = []
    for index, day in enumerate(days):
        number = day.isoformat() if index == 0 or day.day == 1 else str(day.day)
        shown.append(f"{WEEKDAYS[day.weekday()][:3]} {number}{' (today)' if day == reference_date else ''}")
    return f"{WEEKDAYS[reference_date.weekday()]} {reference_date.isoformat()}. Days: {', '.join(shown)}"
