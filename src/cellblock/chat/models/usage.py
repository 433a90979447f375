"""Usage and cost of models: sums, and the summaries that are printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from ..io import IOStream

UsageSummary = dict[str, Any]
"""`total_cost`, and for each model a dict of `cost` and tokens."""

_RULE = "-" * 100
_TOKEN_KEYS = ("prompt_tokens", "completion_tokens", "total_tokens")
_COUNTS = ("cost", *_TOKEN_KEYS)


def with_usage(summary: UsageSummary | None, usage: Mapping[str, Any]) -> UsageSummary:
    """Return `summary` with the `usage` of one more request, as `ModelClient.get_usage` has it."""
    total: UsageSummary = dict(summary or {"total_cost": 0})
    model, cost = str(usage["model"]), usage["cost"]
    total["total_cost"] += cost
    total[model] = _sum(total.get(model), {"cost": cost, **{k: usage[k] for k in _TOKEN_KEYS}})
    return total


def _sum(first: Mapping[str, Any] | None, second: Mapping[str, Any]) -> dict[str, Any]:
    before = first or {}
    return {key: before.get(key, 0) + second[key] for key in _COUNTS}


def gather_usage_summary(agents: Iterable[object]) -> dict[str, UsageSummary]:
    """Return what the models of `agents` used, with and without the answers of caches."""
    total: UsageSummary = {"total_cost": 0}
    actual: UsageSummary = {"total_cost": 0}
    for agent in agents:
        if client := getattr(agent, "client", None):
            _add(total, client.total_usage_summary)
            _add(actual, client.actual_usage_summary)
    return {"usage_including_cached_inference": total, "usage_excluding_cached_inference": actual}


def _add(sums: UsageSummary, summary: UsageSummary | None) -> None:
    for model, values in (summary or {}).items():
        if model == "total_cost":
            sums[model] += values
        else:
            sums[model] = _sum(sums.get(model), values)


def print_summaries(actual: UsageSummary | None, total: UsageSummary | None, mode: object) -> None:
    """Print what was used: without the answers of caches ("actual"), with them ("total"), or both.

    Raise `ValueError` for another mode.
    """
    modes = _modes(mode)
    output = IOStream.get_default()
    if total is None:
        output.print('No usage summary. Please call "create" first.', flush=True)
        return
    output.print(_RULE, flush=True)
    if "actual" in modes:
        _print_actual(actual)
    if modes == {"actual", "total"}:
        output.print()
    if modes == {"actual", "total"} and total == actual:
        output.print(
            "All completions are non-cached: the total cost with cached completions is the same "
            "as actual cost."
        )
    elif "total" in modes:
        _print_usage(total, "including")
    output.print(_RULE, flush=True)


def _modes(mode: object) -> set[str]:
    modes = cast(list[object], mode) if isinstance(mode, list) else [mode]
    if not modes or not all(item in ("actual", "total") for item in modes):
        raise ValueError(
            f'Invalid mode: {mode}, choose from "actual", "total", ["actual", "total"]'
        )
    return {str(item) for item in modes}


def _print_actual(actual: UsageSummary | None) -> None:
    if actual is None:
        IOStream.get_default().print(
            "No actual cost incurred (all completions are using cache).", flush=True
        )
    else:
        _print_usage(actual, "excluding")


def _print_usage(summary: UsageSummary, kind: str) -> None:
    output = IOStream.get_default()
    output.print(f"Usage summary {kind} cached usage: ", flush=True)
    output.print(f"Total cost: {round(summary['total_cost'], 5)}", flush=True)
    for model, values in summary.items():
        if model != "total_cost":
            tokens = ", ".join(f"{key}: {values[key]}" for key in _TOKEN_KEYS)
            output.print(
                f"* Model '{model}': cost: {round(values['cost'], 5)}, {tokens}", flush=True
            )
