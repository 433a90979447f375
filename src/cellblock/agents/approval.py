"""Decide whether code may run: by a function, or by rules and a static look at the code."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, cast, get_args

from pydantic import BaseModel, Field, ValidationError

from ..blocks import CodeBlock
from ..components import Component
from ..models.messages import LLMMessage
from .runnable_blocks import language_family
from .static_look import ALLOWED_PATHS, Activity, look_at

Rule = Literal["allow", "ask", "deny"]
_RULES: tuple[Rule, ...] = get_args(Rule)  # from the weakest to the strictest
_SHOWN_REASONS = 5


class ApprovalRequest(BaseModel):
    """The code that waits for approval, as Markdown, and the messages that led to it.

    `hints` say what a static look at the code found, if `ApprovalRules` ask. `code_blocks` is the
    code as blocks.
    """

    code: str
    context: list[LLMMessage]
    hints: list[str] = Field(default_factory=list[str])
    code_blocks: list[CodeBlock] = Field(default_factory=list[CodeBlock])


class ApprovalResponse(BaseModel):
    """Whether the code may run, and why. A model reads the reason if it may not."""

    approved: bool
    reason: str


class EditedApprovalResponse(ApprovalResponse):
    """The code may run as `code_blocks`. A model that reads the output is told what ran."""

    approved: bool = True
    code_blocks: list[CodeBlock] = Field(min_length=1)


ApprovalFuncType = (
    Callable[[ApprovalRequest], ApprovalResponse]
    | Callable[[ApprovalRequest], Awaitable[ApprovalResponse]]
)


@dataclass(frozen=True)
class Approval:
    """A decision. `hints` say what a static look at the code found.

    `edited_blocks` run instead of the blocks that were asked about, unless it is empty.
    """

    approved: bool
    reason: str
    hints: tuple[str, ...] = ()
    edited_blocks: tuple[CodeBlock, ...] = ()


class ApprovalRules(Component):
    """Decide by the language of the code, and by what it seems to do.

    This is a hint for attentive people and models, and no protection. A static look does not
    understand code: it misses what is computed, hidden or renamed, and it can be wrong. What code
    can do is limited by the executor, its policy and its limits, not by this.

    Each rule is "allow", "ask" or "deny". The strictest rule that applies to a block wins, and the
    strictest block decides for all.

    languages       rules for languages, under any of their names
    other           the rule for languages that are not named
    network         addresses, and modules and commands for connections
    install         commands that install packages
    outside_path    paths that start at the root or at a home folder, or contain "..", except those
                    under `allowed_paths`
    process         starts of other programs and processes by Python
    dynamic_code    code that runs other code, or that leaves Python
    delete          deletions of files and folders
    overwrite       files that are replaced under a name that the code says; whether there is one is
                    not known
    allowed_paths   folders that the code may name. Command-line executors in a sandbox or a
                    container call the work folder /workspace.
    ask             the function that decides where a rule says "ask". Without it, "ask" denies.

    Raise `ValueError` for a rule that does not exist, and if `ask` is not a function.
    """

    component_type: ClassVar[str] = "approval_rules"

    def __init__(
        self,
        *,
        languages: Mapping[str, Rule] | None = None,
        other: Rule = "allow",
        network: Rule = "ask",
        install: Rule = "ask",
        outside_path: Rule = "ask",
        process: Rule = "ask",
        dynamic_code: Rule = "ask",
        delete: Rule = "ask",
        overwrite: Rule = "allow",
        allowed_paths: Sequence[str] = ALLOWED_PATHS,
        ask: ApprovalFuncType | None = None,
    ) -> None:
        self._languages: dict[str, Rule] = {}
        for tag, rule in (languages or {}).items():
            family = language_family(tag)
            checked = _check_rule(tag, rule)
            self._languages[family] = _strictest([checked, self._languages.get(family, checked)])
        self._other: Rule = _check_rule("other", other)
        rules = network, install, outside_path, process, dynamic_code, delete, overwrite
        self._activities: dict[Activity, Rule] = {
            activity: _check_rule(activity, rule)
            for activity, rule in zip(get_args(Activity), rules, strict=True)
        }
        if isinstance(allowed_paths, str):
            raise ValueError(f"allowed_paths must be a list of paths, not {allowed_paths!r}.")
        self._allowed_paths = tuple(allowed_paths)
        check_approval("ask", ask)
        self._ask = ask

    async def decide(self, blocks: Sequence[CodeBlock], context: list[LLMMessage]) -> Approval:
        """Decide whether `blocks` may run. Raise what the function `ask` raises."""
        rules: dict[str, Rule] = {}  # by hint
        for number, block in enumerate(blocks):
            rules |= self._look_at_block(number, block)
        rule = _strictest(rules.values())
        decisive = "; ".join([hint for hint, its in rules.items() if its == rule][:_SHOWN_REASONS])
        hints = tuple(rules)
        match rule:
            case "allow":
                return Approval(True, "The rules allow it.", hints)
            case "ask" if self._ask is not None:
                return await ask_function(self._ask, blocks, context, hints)
            case "ask":
                reason = f"The rules ask about {decisive}, but there is no `ask` function."
                return Approval(False, reason, hints)
            case "deny":
                return Approval(False, f"The rules deny {decisive}.", hints)

    def _look_at_block(self, number: int, block: CodeBlock) -> dict[str, Rule]:
        """Return the rules that apply to a block, by hint. A language that is allowed is none."""
        language_rule: Rule = self._languages.get(language_family(block.language), self._other)
        found: dict[str, Rule] = {}
        if language_rule != "allow":
            found[f"block {number}: language {block.language}"] = language_rule
        for finding in look_at(block, self._allowed_paths):
            found[f"block {number}, {finding}"] = self._activities[finding.activity]
        return found

    def _to_config(self) -> dict[str, object]:
        if self._ask is not None:
            raise ValueError(
                "ApprovalRules with a function `ask` cannot be saved. Save rules without it, and "
                "pass the function again after loading."
            )
        return {
            "languages": self._languages,
            "other": self._other,
            **self._activities,
            "allowed_paths": list(self._allowed_paths),
        }

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        return cls(**cast(dict[str, Any], dict(config)))


def check_approval(name: str, approval: object) -> None:
    """Raise `ValueError` if the argument `name` is not None, a function or `ApprovalRules`."""
    is_class = isinstance(approval, type)
    if is_class or not (
        approval is None or isinstance(approval, ApprovalRules) or callable(approval)
    ):
        raise ValueError(
            f"{name} must be a function that takes an ApprovalRequest and returns an "
            f"ApprovalResponse, or ApprovalRules(...), not {approval!r:.100}."
        )


async def decide(
    approval: ApprovalFuncType | ApprovalRules,
    blocks: Sequence[CodeBlock],
    context: list[LLMMessage],
) -> Approval:
    """Return the decision of a function or of rules. Raise what the function raises."""
    if isinstance(approval, ApprovalRules):
        return await approval.decide(blocks, context)
    return await ask_function(approval, blocks, context)


async def ask_function(
    function: ApprovalFuncType,
    blocks: Sequence[CodeBlock],
    context: list[LLMMessage],
    hints: Sequence[str] = (),
) -> Approval:
    """Return the answer of `function`. Raise `ValueError` if it is not an `ApprovalResponse`."""
    code = "\n\n".join(f"```{block.language}\n{block.code}\n```" for block in blocks)
    request = ApprovalRequest(
        code=code, context=context, hints=list(hints), code_blocks=list(blocks)
    )
    answer: object = function(request)
    if inspect.isawaitable(answer):
        answer = await answer
    try:
        response = ApprovalResponse.model_validate(answer, from_attributes=True)
    except ValidationError as error:
        raise ValueError(
            f"An approval function must return an ApprovalResponse, not {answer!r:.100}."
        ) from error
    edited = answer.code_blocks if isinstance(answer, EditedApprovalResponse) else []
    edited_blocks = () if edited == list(blocks) else tuple(edited)
    return Approval(response.approved, response.reason, tuple(hints), edited_blocks)


def _check_rule(name: str, rule: Rule) -> Rule:
    if rule not in _RULES:
        raise ValueError(f"The rule {name!r} must be 'allow', 'ask' or 'deny', not {rule!r}.")
    return rule


def _strictest(rules: Iterable[Rule]) -> Rule:
    found: list[Rule] = ["allow", *rules]
    return max(found, key=_RULES.index)
