"""Chats: agents that converse, with models, tools, code and people, as AutoGen 0.2 has them."""

from .agent import Agent, ChatMessage, HumanInputMode, LLMAgent
from .assistant_agent import AssistantAgent
from .code_utils import DEFAULT_MODEL, FAST_MODEL
from .conversable_agent import ConversableAgent
from .conversations.chat_queue import a_initiate_chats, initiate_chats
from .conversations.chat_result import ChatResult
from .errors import (
    AgentNameConflict,
    InvalidCarryOverType,
    NoEligibleSpeaker,
    SenderRequired,
    UndefinedNextAgent,
)
from .groups.group_chat import GroupChat
from .groups.group_chat_manager import GroupChatManager
from .groups.society_of_mind_agent import SocietyOfMindAgent
from .io import IOConsole, IOStream
from .models.cache import AbstractCache, Cache
from .models.config_lists import (
    config_list_from_dotenv,
    config_list_from_json,
    config_list_from_models,
    config_list_gpt4_gpt35,
    config_list_openai_aoai,
    filter_config,
    get_config_list,
)
from .models.llm_config import LLMConfig
from .models.model_client import ModelClient
from .models.model_wrapper import OpenAIWrapper
from .models.usage import gather_usage_summary
from .tools.tool_registration import register_function
from .user_proxy_agent import UserProxyAgent

__all__ = [
    "DEFAULT_MODEL",
    "FAST_MODEL",
    "AbstractCache",
    "Agent",
    "AgentNameConflict",
    "AssistantAgent",
    "Cache",
    "ChatMessage",
    "ChatResult",
    "ConversableAgent",
    "GroupChat",
    "GroupChatManager",
    "HumanInputMode",
    "IOConsole",
    "IOStream",
    "InvalidCarryOverType",
    "LLMAgent",
    "LLMConfig",
    "ModelClient",
    "NoEligibleSpeaker",
    "OpenAIWrapper",
    "SenderRequired",
    "SocietyOfMindAgent",
    "UndefinedNextAgent",
    "UserProxyAgent",
    "a_initiate_chats",
    "config_list_from_dotenv",
    "config_list_from_json",
    "config_list_from_models",
    "config_list_gpt4_gpt35",
    "config_list_openai_aoai",
    "filter_config",
    "gather_usage_summary",
    "get_config_list",
    "initiate_chats",
    "register_function",
]
