"""``python -m pace_dspy`` is ``pace-dspy``."""

from pace_dspy.cli import main

if __name__ == "__main__":
    main()
