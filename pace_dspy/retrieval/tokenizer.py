"""The tokenizer of the sparse retriever."""

from __future__ import annotations

import re

_POSSESSIVE = re.compile(r"'s\b")
_TOKEN = re.compile(r"\d{4}-\d{2}-\d{2}|[a-z]+(?:-[a-z]+)*|\d+(?::\d+)?")


def tokenize(text: str) -> list[str]:
    """Split a text into the terms BM25 counts.

    Lower-case; a possessive ``'s`` (ASCII apostrophe) is deleted; then ISO dates, hyphenated words, times and
    numbers are kept whole. No stemming, no stop words; letters outside a-z split words ("café" gives "caf").

    Args:
        text: Any text.

    Returns:
        Terms in text order, repeats kept.

    Paper: hybrid retrieval, sparse side; exactly the released tokenizer.
    """
    return _TOKEN.findall(_POSSESSIVE.sub("", text.lower()))
