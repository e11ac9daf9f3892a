"""``pace-dspy backends``: what there is to ask, what each needs, and whether it answers."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer
from rich.table import Table

from pace_dspy.backends.lm import make_lm
from pace_dspy.backends.overrides import own_settings, parse_settings
from pace_dspy.backends.probe import ProbeReport, probe
from pace_dspy.backends.profiles import PROFILES, BackendProfile
from pace_dspy.cli.live import with_weights
from pace_dspy.cli.options import AsJson, BackendSettings
from pace_dspy.cli.output import emit_json, shown, stderr, stdout
from pace_dspy.cli.render import print_summary

app = typer.Typer(help="List the backends, or test one.", invoke_without_command=True)


@app.callback()
def backends(context: typer.Context, as_json: AsJson = False) -> None:
    """List the backends: key, window, price, schema form."""
    if context.invoked_subcommand is not None:
        return
    if as_json:
        emit_json([_as_dict(profile) for profile in PROFILES.values()])
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("name", "key", "set", "window", "$/M tokens", "schema"):
        table.add_column(column, no_wrap=True)
    for profile in PROFILES.values():
        schema = profile.schema_form
        table.add_row(profile.name, profile.key_env or "-", _set(profile), _window(profile), _price(profile), schema)
    stdout.print(table)
    stdout.print()
    for profile in PROFILES.values():
        stdout.print(f"[bold]{profile.name}[/]: {shown(profile.summary)}")


@app.command("test")
def try_one(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(PROFILES)}.", metavar="NAME")],
    backend_settings: BackendSettings = None,
    as_json: AsJson = False,
) -> None:
    """Make one tiny structured call and report reachability, schema, window, tokens per second and price."""
    settings = own_settings(parse_settings(backend_settings or ()))
    with with_weights(), stderr.status(f"asking {shown(name)}"):
        report = probe(make_lm(name, settings))
    if as_json:
        emit_json(report.to_dict())
    else:
        print_summary(f"{report.backend} answers", _as_text(report))


def _as_text(report: ProbeReport) -> dict[str, str]:
    text = {"model": report.model, "address": report.address or "the provider's own"}
    if report.served is not None:
        text["served"] = ", ".join(report.served[:8]) or "no list"
    text["window"] = f"{report.window:,} tokens (from the {report.window_source})" if report.window else "unknown"
    text["structured reply"] = f"{report.schema_form}, valid at the {report.structured}"
    if report.structured != "first try":
        text["structured reply"] = f"{report.schema_form}, valid only {report.structured}"
    speed = f"{report.tokens_per_second:,.1f} tokens/s" if report.tokens_per_second else "tokens not reported"
    text["speed"] = (
        f"{speed} ({report.prompt_tokens} read, {report.completion_tokens} written in {report.latency_ms:,.0f} ms)"
    )
    money = _money(report.price_prompt, report.price_completion)
    text["price"] = f"$ {money} per M tokens read / written" if "/" in money else money
    if report.cost_usd is not None:
        text["price"] += f"; this call ${report.cost_usd:.6f}"
    if report.retries:
        text["retries"] = str(report.retries)
    return text


def _as_dict(profile: BackendProfile) -> dict[str, Any]:
    return {**profile.model_dump(), "key_set": _is_set(profile.key_env), "model": _model(profile)}


def _set(profile: BackendProfile) -> str:
    if profile.key_env is None:
        return "-"
    return "yes" if _is_set(profile.key_env) else "NO" if profile.key_required else "no"


def _window(profile: BackendProfile) -> str:
    return f"{profile.window:,}" if profile.window else "the server's"


def _price(profile: BackendProfile) -> str:
    return _money(profile.price_prompt, profile.price_completion)


def _money(prompt: float | None, completion: float | None) -> str:
    """Return prices of a million tokens read and written."""
    if prompt is None or completion is None:
        return "unknown"
    return "free" if prompt == completion == 0 else f"{prompt:g} / {completion:g}"


def _model(profile: BackendProfile) -> str:
    return os.environ.get(profile.model_env or "", "") or profile.model


def _is_set(variable: str | None) -> bool:
    return bool(variable and os.environ.get(variable, "").strip())
