"""The report of one or more runs: one self-contained HTML page and PNG plots. Ours."""

from pace_dspy.evaluation.report.build import MAX_TRAILS, Report, build_report

__all__ = ["MAX_TRAILS", "Report", "build_report"]
