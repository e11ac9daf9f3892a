"""The whole run: score, optimize group after group, keep what is better on dev, calibrate, save. Resumable.

Resuming is replaying: every validated reply of a run is kept in its work folder, an optimizer with the same seed asks
the same questions, so a restarted run repeats itself at no cost up to where it ended and goes on from there.
"""

from __future__ import annotations

from typing import Any

from pace_dspy.artifacts import PROGRAM_NAME, save_program
from pace_dspy.optimization.calibrate import calibrate
from pace_dspy.optimization.forecast import shares
from pace_dspy.optimization.group_run import GroupRun
from pace_dspy.optimization.meter import BudgetEnded, Spent
from pace_dspy.optimization.result import CompileResult, GroupResult
from pace_dspy.optimization.settings import NO_OPTIMIZER
from pace_dspy.optimization.setup import Compilation, identity, open_work
from pace_dspy.optimization.snapshot import same, snapshot
from pace_dspy.optimization.stage_programs import thaw
from pace_dspy.optimization.watch import Watch
from pace_dspy.program import PaceMakerProgram


def run(compilation: Compilation, watch: Watch | None = None) -> CompileResult:
    """Compile and save the artifact (``program.json`` and ``manifest.json`` in ``settings.out``).

    Args:
        compilation: From `pace_dspy.optimization.setup.prepare`.
        watch: Told of lines, candidates and progress.

    Raises:
        ConfigError: The work folder belongs to another run, a metric's value was refused, or the budget ended before
            anything was scored.
        BackendError: A backend failed; the same call continues the run.
    """
    compilation, watch = open_work(compilation), watch or Watch()
    settings, spent = compilation.settings, Spent(compilation.settings.work_folder, compilation.settings.budget)
    program: PaceMakerProgram = compilation.program.deepcopy()
    start = snapshot(program)
    results: list[GroupResult] = []
    unreached: list[str] = []
    planned = compilation.forecasts if settings.optimizer != NO_OPTIMIZER else ()
    for one, share in zip(planned, shares(planned), strict=True):
        spent.share = share
        try:
            watch.say(f"{one.group.name}: {settings.optimizer}, at most {one.plan.metric_calls} metric calls")
            results.append(GroupRun(compilation, one, program, spent, watch).run())
            watch.say(f"{one.group.name}: {results[-1].to_text()}")
        except BudgetEnded as exc:
            if not results:
                raise
            unreached.append(one.group.name)
            watch.say(f"{one.group.name}: left as it was: {exc}")
    spent.share = 1.0
    calibration = None
    if settings.calibrate:
        watch.say(f"calibration: the threshold of the decision, on {len(compilation.sets.dev)} dev requests")
        try:
            calibration = calibrate(compilation, program, spent, watch)
        except BudgetEnded as exc:
            if not results:
                raise
            unreached.append("calibration")
            watch.say(f"calibration: left out: {exc}")
    changed = calibration is not None or not same(start, snapshot(program))
    spent.add(())
    program_file = settings.out / PROGRAM_NAME
    result = CompileResult(
        tuple(results), calibration, spent.to_dict(), changed, program_file, unreached=tuple(unreached)
    )
    save_program(thaw(program), settings.out, backend=settings.backend, **manifest_facts(compilation, result))
    return result


def manifest_facts(compilation: Compilation, result: CompileResult) -> dict[str, Any]:
    """Return what the manifest says beside config, signatures, versions and commit."""
    settings = compilation.settings
    plain = result.to_dict()
    names = [planned.group.name for planned in compilation.forecasts]
    return {
        "optimizer": settings.optimizer,
        "arguments": {**identity(compilation), "budget": vars(settings.budget)},
        "seed": settings.seed,
        "data_hash": compilation.data_hash,
        "split_data_hash": compilation.split.data_hash,
        "prompt_backend": compilation.prompt_lm.profile.name if compilation.prompt_lm else None,
        "metrics": names if compilation.metric is None else ["own"],
        "groups": plain["groups"],
        "changed": plain["changed"],
        "calibration": plain["calibration"],
        "unreached": plain["unreached"],
        "spent": plain["spent"],
    }
