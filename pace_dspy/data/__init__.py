"""Data of pace_dspy."""
