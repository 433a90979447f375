"""Handoffs: who speaks after an agent of AG2's group chats, and under which condition.

The names, and the texts that models and people read, are those of `autogen.agentchat.group`.
"""

from __future__ import annotations

import ast
import operator
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar, cast

from .agent import Agent, ChatMessage
from .tools.context_variables import ContextVariables

_T = TypeVar("_T")


class HasVariables(Protocol):
    """An agent of a group chat."""

    context_variables: ContextVariables


class FindsAgents(Protocol):
    """A group chat."""

    select_speaker_prompt_template: str | None

    def agent_by_name(self, name: str) -> Agent | None: ...


# targets


class TransitionTarget:
    """Who speaks next. The text of a target is what the model reads after it chose it."""

    label = ""  # in names of functions
    text = ""

    def next_speaker(
        self, chat: FindsAgents, current: Agent, user: Agent | None
    ) -> Agent | str | None:
        """Return who speaks after `current`, the name of a method of selection, or None."""
        raise NotImplementedError(f"{type(self).__name__} has no next_speaker.")

    def agent_names(self) -> list[str]:
        """Return the names of agents that have to be in the chat."""
        return []

    def display_name(self) -> str:
        """Return the name for people."""
        return self.text

    def normalized_name(self) -> str:
        """Return the name in names of functions."""
        return self.label

    def __str__(self) -> str:
        return self.text


class AgentNameTarget(TransitionTarget):
    """The agent with a name."""

    def __init__(self, agent_name: str) -> None:
        self.agent_name = self.label = agent_name
        self.text = f"Transfer to {agent_name}"

    def next_speaker(
        self, chat: FindsAgents, current: Agent, user: Agent | None
    ) -> Agent | str | None:
        """Return the agent. Raise `ValueError` if it is not in the chat."""
        if (agent := chat.agent_by_name(self.agent_name)) is None:
            raise ValueError(f"The agent {self.agent_name!r} is not in the group chat.")
        return agent

    def agent_names(self) -> list[str]:
        """Return the name of the agent."""
        return [self.agent_name]

    def display_name(self) -> str:
        """Return the agent's name."""
        return self.agent_name


class AgentTarget(AgentNameTarget):
    """An agent."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent.name)


class RandomAgentTarget(TransitionTarget):
    """One of several agents, by chance, but not the one that spoke."""

    def __init__(self, agents: Sequence[Agent]) -> None:
        self.names = [agent.name for agent in agents]

    def next_speaker(
        self, chat: FindsAgents, current: Agent, user: Agent | None
    ) -> Agent | str | None:
        """Return one of the agents."""
        self.label = random.choice([name for name in self.names if name != current.name])
        self.text = f"Transfer to {self.label}"
        return AgentNameTarget(self.label).next_speaker(chat, current, user)

    def agent_names(self) -> list[str]:
        """Return the names of the agents."""
        return self.names


class TerminateTarget(TransitionTarget):
    """The end of the chat."""

    label, text = "terminate", "Terminate"

    def next_speaker(
        self, chat: FindsAgents, current: Agent, user: Agent | None
    ) -> Agent | str | None:
        """Return None."""
        return None


class StayTarget(TransitionTarget):
    """The agent that spoke, again."""

    label, text = "stay", "Stay with agent"

    def next_speaker(
        self, chat: FindsAgents, current: Agent, user: Agent | None
    ) -> Agent | str | None:
        """Return `current`."""
        return current

    def display_name(self) -> str:
        """Return the name for people."""
        return "Stay"


class RevertToUserTarget(TransitionTarget):
    """The `user_agent` of the pattern."""

    label, text = "revert_to_user", "Revert to User"

    def next_speaker(
        self, chat: FindsAgents, current: Agent, user: Agent | None
    ) -> Agent | str | None:
        """Return `user`. Raise `ValueError` if there is none."""
        if user is None:
            raise ValueError(
                "User agent must be provided to the chat for the revert_to_user option."
            )
        return user


class AskUserTarget(TransitionTarget):
    """The agent that a person chooses."""

    label, text = "ask_user", "Ask User"

    def next_speaker(
        self, chat: FindsAgents, current: Agent, user: Agent | None
    ) -> Agent | str | None:
        """Return "manual"."""
        return "manual"


@dataclass
class GroupManagerSelectionMessageString:
    """How the manager's model is asked for the next agent; `{agentlist}` is replaced."""

    message: str

    def get_message(self, agent: HasVariables) -> str:
        """Return the text."""
        return self.message


@dataclass
class GroupManagerSelectionMessageContextStr:
    """How the manager's model is asked, with values of context variables."""

    context_str_template: str

    def get_message(self, agent: HasVariables) -> str:
        """Return the text with the values that `agent` has, but `{agentlist}` as it is."""
        values = {**agent.context_variables, "agentlist": "{agentlist}"}
        return self.context_str_template.format(**values)


SelectionMessage = GroupManagerSelectionMessageString | GroupManagerSelectionMessageContextStr


class GroupManagerTarget(TransitionTarget):
    """The agent that the model of the group manager chooses."""

    label, text = "group_manager", "Transfer to the group manager"

    def __init__(self, selection_message: SelectionMessage | None = None) -> None:
        self.selection_message = selection_message

    def next_speaker(
        self, chat: FindsAgents, current: Agent, user: Agent | None
    ) -> Agent | str | None:
        """Return "auto"."""
        if self.selection_message is not None:
            message = self.selection_message.get_message(cast(HasVariables, current))
            chat.select_speaker_prompt_template = message
        return "auto"

    def display_name(self) -> str:
        """Return the name for people."""
        return "the group manager"


class NestedChatTarget(TransitionTarget):
    """Chats that are held instead of a message; `nested_chat_config` has their `chat_queue`."""

    label, text = "nested_chat", "Transfer to nested chat"

    def __init__(self, nested_chat_config: Mapping[str, Any]) -> None:
        self.nested_chat_config = nested_chat_config
        self._agent: Agent | None = None

    def bind(self, agent: Agent) -> None:
        """Set the agent that holds the chats. The target has its name then."""
        self._agent, self.label = agent, agent.name
        self.text = f"Transfer to {agent.name}"

    def next_speaker(
        self, chat: FindsAgents, current: Agent, user: Agent | None
    ) -> Agent | str | None:
        """Return the agent that holds the chats. Raise `ValueError` outside of handoffs."""
        if self._agent is None:
            raise ValueError("A NestedChatTarget can only be the target of an agent's handoffs.")
        return self._agent

    def display_name(self) -> str:
        """Return the name for people."""
        return "a nested chat" if self._agent is None else self._agent.name


# conditions


@dataclass
class ContextStr:
    """A text with values of context variables: `{name}`."""

    template: str

    def format(self, context_variables: ContextVariables) -> str:
        """Return the text with the values. Raise `KeyError` if one is missing."""
        return self.template.format(**context_variables) if context_variables else self.template

    def __str__(self) -> str:
        return f"ContextStr, unformatted: {self.template}"


_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_QUOTED = re.compile(r"('[^']*'|\"[^\"]*\")")
_PREFIX = "variable_"


class ContextExpression:
    """A condition on context variables, such as `len(${orders}) > 0 and not ${closed}`.

    It has `not`, `and`, `or` (also `!`, `&`, `|`), comparisons, `len`, constants and parentheses.
    Raise `SyntaxError` if it cannot be parsed, and `ValueError` if it has anything else.
    """

    def __init__(self, expression: str) -> None:
        self.expression = expression
        parts = _QUOTED.split(expression)
        parts[::2] = map(_as_python, parts[::2])
        try:
            self._tree = ast.parse("".join(parts).strip(), mode="eval").body
        except SyntaxError as error:
            raise SyntaxError(f"Invalid expression syntax in '{expression}': {error}") from error
        self._value(self._tree, None)

    def evaluate(self, context_variables: ContextVariables) -> bool:
        """Return if it holds. Raise `KeyError` for a variable that is missing."""
        return bool(self._value(self._tree, context_variables))

    def _value(self, node: ast.expr, variables: ContextVariables | None) -> Any:
        """Return the value of a part; without `variables` only check that it may be there."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name) if name.startswith(_PREFIX):
                return None if variables is None else _variable(variables, name)
            case ast.UnaryOp(op=ast.Not() | ast.USub() as op, operand=operand):
                value = self._value(operand, variables)
                return not value if isinstance(op, ast.Not) else variables and -value
            case ast.BoolOp(op=op, values=parts):
                return self._combine(isinstance(op, ast.And), parts, variables)
            case ast.Compare(left=first, ops=ops, comparators=rest) if all(
                type(op) in _COMPARISONS for op in ops
            ):
                values = [self._value(part, variables) for part in (first, *rest)]
                pairs = zip(ops, values, values[1:], strict=False)
                return variables is None or all(_COMPARISONS[type(op)](a, b) for op, a, b in pairs)
            case ast.Call(func=ast.Name(id="len"), args=[part], keywords=[]):
                value = self._value(part, variables)
                return len(value) if hasattr(value, "__len__") else 0
            case _:
                raise ValueError(
                    f"{ast.unparse(node)!r} is not allowed in the expression '{self.expression}'. "
                    "Use not, and, or, comparisons, len(${name}) and constants."
                )

    def _combine(
        self, is_and: bool, parts: Iterable[ast.expr], variables: ContextVariables | None
    ) -> Any:
        value: Any = is_and
        for part in parts:
            value = self._value(part, variables)
            if variables is not None and bool(value) is not is_and:
                break
        return value

    def __str__(self) -> str:
        return f"ContextExpression('{self.expression}')"


def _as_python(text: str) -> str:
    """Return a part without quoted texts, with the operators and variables of Python."""
    for pattern, replacement in (
        (r"!(?!=)", " not "),
        (r"&+", " and "),
        (r"\|+", " or "),
        (r"\$\{(\w+)\}", rf"{_PREFIX}\1"),
    ):
        text = re.sub(pattern, replacement, text)
    return text


def _variable(variables: ContextVariables, name: str) -> Any:
    key = name.removeprefix(_PREFIX)
    if key not in variables:
        raise KeyError(f"Missing context variable: '{key}'")
    return variables[key]


@dataclass
class StringContextCondition:
    """True if a context variable has a true value."""

    variable_name: str

    def evaluate(self, context_variables: ContextVariables) -> bool:
        """Return if the condition holds."""
        return bool(context_variables.get(self.variable_name))


@dataclass
class ExpressionContextCondition:
    """True if an expression holds."""

    expression: ContextExpression

    def evaluate(self, context_variables: ContextVariables) -> bool:
        """Return if the condition holds."""
        return self.expression.evaluate(context_variables)


@dataclass
class StringAvailableCondition:
    """True if a context variable of the agent has a true value."""

    context_variable: str

    def is_available(self, agent: HasVariables, messages: list[ChatMessage]) -> bool:
        """Return if the condition holds."""
        return bool(agent.context_variables.get(self.context_variable))


@dataclass
class ExpressionAvailableCondition:
    """True if an expression holds for the context variables of the agent."""

    expression: ContextExpression

    def is_available(self, agent: HasVariables, messages: list[ChatMessage]) -> bool:
        """Return if the condition holds."""
        return self.expression.evaluate(agent.context_variables)


AvailableCondition = StringAvailableCondition | ExpressionAvailableCondition


@dataclass
class StringLLMCondition:
    """Tells the model when to hand off."""

    prompt: str

    def get_prompt(self, agent: HasVariables, messages: list[ChatMessage]) -> str:
        """Return the text."""
        return self.prompt


@dataclass
class ContextStrLLMCondition:
    """Tells the model when to hand off, with values of context variables."""

    context_str: ContextStr

    def get_prompt(self, agent: HasVariables, messages: list[ChatMessage]) -> str:
        """Return the text with the values that `agent` has."""
        return self.context_str.format(agent.context_variables)


@dataclass
class _Condition:
    target: TransitionTarget

    def is_available(self, agent: HasVariables, messages: list[ChatMessage]) -> bool:
        """Return True if the agent may hand off to the target now."""
        available: AvailableCondition | None = getattr(self, "available", None)
        return available is None or available.is_available(agent, messages)


@dataclass
class OnCondition(_Condition):
    """The model of the agent chooses the target: it is offered as a function."""

    condition: StringLLMCondition | ContextStrLLMCondition
    available: AvailableCondition | None = None
    llm_function_name: str | None = None


@dataclass
class OnContextCondition(_Condition):
    """The target is chosen if the condition holds, before a model is asked. None always holds."""

    condition: StringContextCondition | ExpressionContextCondition | None = None
    available: AvailableCondition | None = None

    def holds(self, agent: HasVariables, messages: list[ChatMessage]) -> bool:
        """Return True if the target is chosen now."""
        return self.is_available(agent, messages) and (
            self.condition is None or self.condition.evaluate(agent.context_variables)
        )


@dataclass
class Handoffs:
    """Who may speak after an agent. The methods that add something return the object.

    context_conditions   are tried before the agent replies
    llm_conditions       are offered to its model
    after_works          are tried when it has replied without another target
    """

    context_conditions: list[OnContextCondition] = field(default_factory=list[OnContextCondition])
    llm_conditions: list[OnCondition] = field(default_factory=list[OnCondition])
    after_works: list[OnContextCondition] = field(default_factory=list[OnContextCondition])

    def add_context_condition(self, condition: OnContextCondition) -> Self:
        """Add a condition."""
        return self.add_context_conditions([condition])

    def add_context_conditions(self, conditions: Iterable[OnContextCondition]) -> Self:
        """Add conditions."""
        self.context_conditions += _checked(conditions, OnContextCondition)
        return self

    def add_llm_condition(self, condition: OnCondition) -> Self:
        """Add a condition."""
        return self.add_llm_conditions([condition])

    def add_llm_conditions(self, conditions: Iterable[OnCondition]) -> Self:
        """Add conditions."""
        self.llm_conditions += _checked(conditions, OnCondition)
        return self

    def set_after_work(self, target: TransitionTarget) -> Self:
        """Hand off to `target` after each reply that has no other target."""
        [checked] = _checked([target], TransitionTarget)
        self.after_works = [OnContextCondition(target=checked)]
        return self

    def add_after_work(self, condition: OnContextCondition) -> Self:
        """Add what is tried after a reply. One without condition comes last, and only one."""
        return self.add_after_works([condition])

    def add_after_works(self, conditions: Iterable[OnContextCondition]) -> Self:
        """Add what is tried after a reply. One without condition comes last, and only one."""
        every = [*self.after_works, *_checked(conditions, OnContextCondition)]
        always = [each for each in every if each.condition is None]
        self.after_works = [each for each in every if each.condition is not None] + always[-1:]
        return self

    def add(self, condition: OnCondition | OnContextCondition) -> Self:
        """Add a condition of either kind."""
        return self.add_many([condition])

    def add_many(self, conditions: Iterable[OnCondition | OnContextCondition]) -> Self:
        """Add conditions of either kind."""
        for condition in conditions:
            if isinstance(condition, OnCondition):
                self.add_llm_condition(condition)
            else:
                self.add_context_condition(condition)
        return self

    def clear(self) -> Self:
        """Remove all conditions."""
        self.context_conditions, self.llm_conditions, self.after_works = [], [], []
        return self

    def conditions(self) -> list[OnCondition | OnContextCondition]:
        """Return all conditions."""
        return [*self.context_conditions, *self.llm_conditions, *self.after_works]


def _checked(values: Iterable[_T], kind: type[_T]) -> list[_T]:
    checked = list(values)
    for value in checked:
        if not isinstance(value, kind):
            raise TypeError(f"Expected an {kind.__name__} instance, got {type(value).__name__}")
    return checked


@dataclass
class ReplyResult:
    """What a function returns: a text, and who speaks next or new context variables."""

    message: str
    target: TransitionTarget | None = None
    context_variables: ContextVariables | None = None

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class UpdateSystemMessage:
    """Sets the system message of an agent before each reply.

    content_updater   a text with values of context variables, `{name}`; or a function
                      (agent, messages) that returns the text
    """

    content_updater: str | Callable[[Any, list[ChatMessage]], str]

    def __call__(self, agent: Any, messages: list[ChatMessage]) -> None:
        update = self.content_updater
        text = update(agent, messages) if callable(update) else None
        if text is None:
            text = ContextStr(cast(str, update)).format(agent.context_variables)
        agent.update_system_message(text)


def listed_functions(functions: Any) -> list[Callable[..., Any]]:
    """Return one function, or several, or None, as a list. Raise `TypeError` for anything else."""
    listed = [functions] if callable(functions) else functions or []
    if not isinstance(listed, list | tuple) or not all(map(callable, cast(list[Any], listed))):
        raise TypeError("Functions must be a callable or a list of callables")
    return list(cast(list[Any], listed))
