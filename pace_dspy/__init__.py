"""PaceMaker as a declarative DSPy program: find the few decisive facts, then decide."""
