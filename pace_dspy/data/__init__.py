"""Data of pace_dspy: loading, a user's own facts, splits by persona, validation, shortcut checks."""

from pace_dspy.data.hub import HUB_REPO, DataDownloadError
from pace_dspy.data.loading import load_pace
from pace_dspy.data.schema import DataWarning, content_hash
from pace_dspy.data.shortcuts import ShortcutResult, shortcut_checks
from pace_dspy.data.sources import MINI, mini_path
from pace_dspy.data.splits import (
    PARTS,
    Part,
    Split,
    fixed_split,
    load_mini_split,
    load_split,
    make_split,
    save_split,
    select_split,
)
from pace_dspy.data.user_kb import load_kb
from pace_dspy.data.validation import (
    GENERAL_RULES,
    MINI_RULES,
    Finding,
    ValidationReport,
    ValidationRules,
    validate,
)

__all__ = [
    "GENERAL_RULES",
    "HUB_REPO",
    "MINI",
    "MINI_RULES",
    "PARTS",
    "DataDownloadError",
    "DataWarning",
    "Finding",
    "Part",
    "ShortcutResult",
    "Split",
    "ValidationReport",
    "ValidationRules",
    "content_hash",
    "fixed_split",
    "load_kb",
    "load_mini_split",
    "load_pace",
    "load_split",
    "make_split",
    "mini_path",
    "save_split",
    "select_split",
    "shortcut_checks",
    "validate",
]
