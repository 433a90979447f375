"""Several agents with a turn order and a stop condition."""

from ..errors import TerminatedException
from .base import Team
from .conditions import (
    ExternalTermination,
    FunctionalTermination,
    FunctionCallTermination,
    HandoffTermination,
    MaxMessageTermination,
    SourceMatchTermination,
    StopMessageTermination,
    TextMentionTermination,
    TextMessageTermination,
    TimeoutTermination,
    TokenUsageTermination,
)
from .console import Console
from .group_chat import BaseGroupChat
from .round_robin import RoundRobinGroupChat
from .selector import SelectorGroupChat
from .swarm import Swarm
from .termination import (
    AndTerminationCondition,
    BaseTerminationCondition,
    OrTerminationCondition,
    TerminationCondition,
)
from .user_input import UserInputManager

__all__ = [
    "AndTerminationCondition",
    "BaseGroupChat",
    "BaseTerminationCondition",
    "Console",
    "ExternalTermination",
    "FunctionCallTermination",
    "FunctionalTermination",
    "HandoffTermination",
    "MaxMessageTermination",
    "OrTerminationCondition",
    "RoundRobinGroupChat",
    "SelectorGroupChat",
    "SourceMatchTermination",
    "StopMessageTermination",
    "Swarm",
    "Team",
    "TerminatedException",
    "TerminationCondition",
    "TextMentionTermination",
    "TextMessageTermination",
    "TimeoutTermination",
    "TokenUsageTermination",
    "UserInputManager",
]
