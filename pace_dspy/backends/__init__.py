"""Backends of pace_dspy."""
