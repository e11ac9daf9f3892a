"""Retrieval of pace_dspy."""
