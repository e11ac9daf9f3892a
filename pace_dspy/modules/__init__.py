"""Modules of pace_dspy."""
