"""LLMConfig: which models an agent asks, as AG2 writes it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self, cast

from .client_configs import check_config_list
from .config_lists import ModelConfig, config_list_from_json, filter_config

# Without a list of models, all other keywords describe the only model.
_OPTIONS = frozenset(
    "allow_format_str_template cache_seed check_every_ms functions max_tokens parallel_tool_calls "
    "response_format routing_method seed temperature timeout tools top_p".split()
)
_current: ContextVar[tuple[LLMConfig, ...]] = ContextVar("current_llm_configs", default=())


class LLMConfig(dict[str, Any]):
    """An `llm_config` with the interface of AG2. It is a dict, whose keys are also attributes.

    The models are dicts, `LLMConfig({"model": …}, {"model": …}, temperature=0)`, a list,
    `LLMConfig(config_list=[…])`, or keywords, `LLMConfig(api_type="openai", model=…)`. Agents that
    are made without `llm_config` in `with LLMConfig(…):` have this one.

    Raise `ValueError` if there is no model, or for a routing method other than "fixed_order".
    """

    def __init__(self, *configs: ModelConfig, **options: Any) -> None:
        options = {name: value for name, value in options.items() if value is not None}
        if options.pop("routing_method", "fixed_order") != "fixed_order":
            raise ValueError("Only routing_method='fixed_order' is offered.")
        options.pop("check_every_ms", None)  # it has no effect in AG2
        listed = options.pop("config_list", None)
        if not configs and listed is None:
            listed = {key: options.pop(key) for key in set(options) - _OPTIONS}
        more = cast("Iterable[ModelConfig]", [listed] if isinstance(listed, dict) else listed or [])
        entries = [*configs, *more]
        check_config_list(entries)
        entries = [{"api_type": "openai", **entry} for entry in entries if entry]
        if not entries:
            raise ValueError(
                "LLMConfig has no model. Pass one, such as LLMConfig({'model': …, 'api_key': …})."
            )
        super().__init__(config_list=entries, **options)

    @classmethod
    def ensure_config(cls, config: LLMConfig | ModelConfig | Iterable[ModelConfig], /) -> LLMConfig:
        """Return an LLMConfig for a config, the dict of one model, or those of several."""
        if isinstance(config, LLMConfig):
            return config.copy()
        if isinstance(config, Mapping):
            entry = cast("ModelConfig", config)
            return cls(**entry) if "config_list" in entry else cls(entry)
        return cls(*config)

    @classmethod
    def from_json(
        cls,
        *,
        env: str | None = None,
        path: str | Path | None = None,
        file_location: str | None = None,
        filter_dict: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Return the models in the variable `env` or the file `path`; see `config_list_from_json`.

        Raise `ValueError` unless exactly one of them is given.
        """
        if (env is None) == (path is None):
            raise ValueError("Pass either env or path.")
        source = str(path) if env is None else env
        return cls(*config_list_from_json(source, file_location, filter_dict), **options)

    @classmethod
    def get_current_llm_config(cls, llm_config: LLMConfig | None = None) -> LLMConfig | None:
        """Return `llm_config`, or else that of the `with` block around, or None."""
        if llm_config is not None:
            return llm_config
        return _current.get()[-1].copy() if _current.get() else None

    def where(self, *, exclude: bool = False, **values: Any) -> LLMConfig:
        """Return a config with the models that have `values`; see `filter_config`.

        Raise `ValueError` if there are none.
        """
        found = filter_config(self["config_list"], values, exclude)
        if not found:
            raise ValueError(f"No config found that satisfies the filter criteria: {values}")
        return LLMConfig(**{**self, "config_list": found})

    def model_dump(self) -> dict[str, Any]:
        """Return a plain dict with the same values."""
        return dict(self)

    def model_dump_json(self) -> str:
        """Return the values as JSON."""
        return json.dumps(self.model_dump())

    def copy(self) -> LLMConfig:
        """Return a copy whose models can be changed separately."""
        return LLMConfig(**{**self, "config_list": [dict(each) for each in self["config_list"]]})

    def deepcopy(self) -> LLMConfig:
        """Return a deep copy."""
        return copy.deepcopy(self)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"LLMConfig has no attribute {name!r}.") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __enter__(self) -> LLMConfig:
        _current.set((*_current.get(), self))
        return self

    def __exit__(self, *exception: object) -> None:
        _current.set(_current.get()[:-1])

    def __repr__(self) -> str:
        """Return the values, without keys and tokens."""
        hidden = [
            {key: "**********" if _is_secret(key) else value for key, value in entry.items()}
            for entry in cast("list[ModelConfig]", self["config_list"])
        ]
        shown = {**self, "config_list": hidden}
        return f"LLMConfig({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def _is_secret(key: str) -> bool:
    return key.lower().endswith(("key", "token"))
