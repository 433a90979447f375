"""Which agent may speak after which."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, cast

from ..agent import Agent

logger = logging.getLogger(__name__)

Transitions = dict[Agent, list[Agent]]
"""For an agent, the agents that may speak after it."""


def transitions_with_repeats(
    agents: Sequence[Agent], repeat: bool | Iterable[Agent]
) -> Transitions:
    """Return the transitions in which every agent may follow every other.

    `repeat` is True if an agent may follow itself as well, or the agents that may.
    """
    repeating = list(agents) if repeat is True else [] if repeat is False else list(repeat)
    for agent in repeating:
        if agent not in agents:
            raise ValueError(
                f"allow_repeat_speaker names {_name(agent)!r}, which is not in the group chat."
            )
    return {
        agent: [*(other for other in agents if other != agent), *_only(agent, repeating)]
        for agent in agents
    }


def _only(agent: Agent, repeating: list[Agent]) -> list[Agent]:
    return [agent] if agent in repeating else []


def invert_disallowed_to_allowed(
    disallowed_speaker_transitions_dict: Mapping[Agent, list[Agent]], agents: Sequence[Agent]
) -> Transitions:
    """Return the allowed transitions, from those that are not allowed.

    Raise ValueError if the mapping is not one of agents of the group to lists.
    """
    _check_shape(disallowed_speaker_transitions_dict, agents, "disallowed_speaker_transitions")
    disallowed = disallowed_speaker_transitions_dict
    return {
        agent: [other for other in agents if other not in disallowed.get(agent, [])]
        for agent in agents
    }


def check_graph_validity(
    allowed_speaker_transitions_dict: Mapping[Agent, list[Agent]], agents: Sequence[Agent]
) -> None:
    """Raise ValueError if the mapping is not one of agents of the group to lists of agents.

    Log a warning for agents that no transition reaches, agents outside the group, and duplicates.
    """
    allowed = allowed_speaker_transitions_dict
    _check_shape(allowed, agents, "allowed_speaker_transitions_dict")
    if not all(isinstance(agent, Agent) for agent in cast(list[object], _followers(allowed))):
        raise ValueError(
            "allowed_speaker_transitions_dict has values that are not lists of Agents."
        )
    _warn_of_unused_agents(allowed, agents)
    for agent, followers in allowed.items():
        duplicates = {other.name for other in followers if followers.count(other) > 1}
        if duplicates:
            logger.warning(
                "Agent '%s' has duplicate elements: %s. Please remove duplicates manually.",
                agent.name,
                sorted(duplicates),
            )


def visualize_speaker_transitions_dict(
    speaker_transitions_dict: Mapping[Agent, list[Agent]],
    agents: Sequence[Agent],
    export_path: str | os.PathLike[str] | None = None,
) -> None:
    """Draw the transitions as arrows between the names of `agents`, and show or save the picture.

    Raise `ImportError` without networkx and matplotlib.
    """
    try:
        plt: Any = import_module("matplotlib.pyplot")
        nx: Any = import_module("networkx")
    except ImportError as error:
        raise ImportError(
            "The picture needs networkx and matplotlib. "
            "Install them: pip install networkx matplotlib"
        ) from error
    graph = nx.DiGraph()
    graph.add_nodes_from(agent.name for agent in agents)
    for agent, followers in speaker_transitions_dict.items():
        graph.add_edges_from((agent.name, other.name) for other in followers)
    nx.draw(graph, with_labels=True, font_weight="bold")
    if export_path is None:
        plt.show()
    else:
        plt.savefig(export_path)


def _check_shape(transitions: object, agents: Sequence[Agent], what: str) -> None:
    if not isinstance(transitions, Mapping):
        raise ValueError(f"{what} must be a dictionary.")
    mapping = cast(Mapping[Any, Any], transitions)
    if not all(isinstance(followers, list) for followers in mapping.values()):
        raise ValueError(f"{what} must be a dictionary with lists as values.")
    if not all(agent in agents for agent in mapping):
        raise ValueError(f"{what} has keys not in agents.")


def _warn_of_unused_agents(allowed: Mapping[Agent, list[Agent]], agents: Sequence[Agent]) -> None:
    followers = _followers(allowed)
    used = [*(agent for agent, after in allowed.items() if after), *followers]
    unused = [agent.name for agent in agents if agent not in used]
    outside = {agent.name for agent in followers if agent not in agents}
    if unused:
        logger.warning(
            "Warning: There are isolated agent nodes, there are not incoming nor outgoing edges. "
            "Isolated agents: %s",
            unused,
        )
    if unused or outside:
        logger.warning(
            "Warning: The set of agents in allowed_speaker_transitions do not match agents. "
            "Offending agents: %s",
            [*unused, *sorted(outside)],
        )


def _followers(transitions: Mapping[Agent, list[Agent]]) -> list[Agent]:
    return [agent for followers in transitions.values() for agent in followers]


def _name(agent: object) -> str:
    return getattr(agent, "name", None) or repr(agent)
