"""Evaluation of pace_dspy."""
