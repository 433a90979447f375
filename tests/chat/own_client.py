"""A model client of the user's own, as AutoGen 0.2 lets users write them."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any


class OwnClient:
    """Repeat the last message. Subclasses may answer something else.

    `requests` has what it was asked, and `threads` in which threads.
    """

    def __init__(self, config: dict[str, Any], suffix: str = "") -> None:
        self.config, self._suffix = config, suffix
        self.requests: list[dict[str, Any]] = []
        self.threads: list[int] = []

    def answer(self, params: dict[str, Any]) -> SimpleNamespace:
        """Return the message of the answer."""
        return SimpleNamespace(content=params["messages"][-1]["content"] + self._suffix)

    def create(self, params: dict[str, Any]) -> Any:
        self.requests.append(params)
        self.threads.append(threading.get_ident())
        return SimpleNamespace(choices=[SimpleNamespace(message=self.answer(params))], model="own")

    def message_retrieval(self, response: Any) -> list[str]:
        return [choice.message.content for choice in response.choices]

    def cost(self, response: Any) -> float:
        return 0.5

    @staticmethod
    def get_usage(response: Any) -> dict[str, Any]:
        tokens = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
        return {**tokens, "cost": response.cost, "model": response.model}


def own_model(client: type[OwnClient] = OwnClient, **settings: Any) -> dict[str, Any]:
    """Return the `llm_config` of a model that asks `client`, which must be registered."""
    return {
        "config_list": [{"model": "x", "model_client_cls": client.__name__, **settings}],
        "cache_seed": None,
    }
