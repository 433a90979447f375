"""OpenAIWrapper: ask the models of a `config_list`, one after the other until one answers."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

from ...errors import ModelError
from ..runtime_logging import log_chat_completion, now
from ..steps import Step, Steps, asynchronous, in_thread, synchronous
from .cache import AbstractCache, Cache
from .cached_answers import keep_answer, kept_answer
from .client_configs import check_config_list, client_of
from .config_keys import ModelConfig, refuse_addresses, request_config, request_parameters
from .model_client import ChatModelClient, ModelClient
from .prices import Price, to_price
from .rate_limit import RateLimit
from .templates import Context, Template, fill_messages, instantiate
from .usage import UsageSummary, print_summaries, with_usage

_logger = logging.getLogger(__name__)

LEGACY_DEFAULT_CACHE_SEED = 41
LEGACY_CACHE_DIR = ".cache"


class PlaceHolderClient:
    """Stands for your own class until `register_model_client` is called."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config

    @property
    def class_name(self) -> str:
        """The name of the class."""
        return str(self.config["model_client_cls"])


class OpenAIWrapper:
    """Ask a model, with the interface of AutoGen 0.2.

    config_list    the entries are tried in order, until one answers whose answer passes
                   `filter_func`. None means one entry, that of `base_config`
    base_config    what the entries have in common; an entry wins

    An entry says how to connect (`model`, `api_type`, `api_key`, `base_url`, `api_version`, …), has
    a client of `cellblock.models` as `model_client`, or the name of your own class as
    `model_client_cls`. All other keys are parameters of each request.

    Raise `ValueError` if credentials are missing, or for a setting that is not offered.
    """

    def __init__(
        self, *, config_list: Sequence[ModelConfig] | None = None, **base_config: Any
    ) -> None:
        check_config_list(config_list)
        entries = [{**base_config, **entry} for entry in config_list or [{}]]
        self._clients: list[ModelClient | PlaceHolderClient] = [_open(entry) for entry in entries]
        self._config_list = [request_config(entry) for entry in entries]
        self._prices: list[Price | None] = [to_price(entry.get("price")) for entry in entries]
        rates = [entry.get("api_rate_limit") for entry in entries]
        self._limits = [None if rate is None else RateLimit(float(rate)) for rate in rates]
        self.actual_usage_summary: UsageSummary | None = None
        self.total_usage_summary: UsageSummary | None = None

    @synchronous
    def create(self, **config: Any) -> Steps[Any]:
        """Return the answer of the first model that answers.

        config   parameters of the request, of which those in an entry of `config_list` win, and

                 context                     values for templates in messages
                 cache                       an `AbstractCache` that keeps the answers
                 cache_seed                  without `cache`: the folder in ".cache" that keeps
                                             them; 41 if it is not given, none if it is None
                 filter_func                 called with `context` and `response`; False asks the
                                             next model. The last answer is returned in any case
                 allow_format_str_template   format the texts of messages with `context`

        With a `model_client` there is no cache unless `cache` or `cache_seed` is given. Raise
        `ModelError` if the last model cannot be asked, `RuntimeError` if your own class was
        not registered, and `ValueError` for parameters that are not those of a request.
        """
        self._require_registered_clients()
        refuse_addresses(config)
        last = len(self._clients) - 1
        for number, entry in enumerate(self._config_list):
            full = {**config, **entry}
            try:
                response = yield from self._answer_steps(number, full)
            except ModelError as error:
                if number == last:
                    raise
                _logger.warning("Entry %d of config_list failed: %s", number, error)
                continue
            filter_func = full.get("filter_func")
            passes = filter_func is None or bool(
                filter_func(context=full.get("context"), response=response)
            )
            if passes or number == last:
                response.config_id = number
                response.pass_filter = passes
                return response
        raise AssertionError("The loop returns or raises at the last entry.")

    a_create = asynchronous(create)

    def _answer_steps(self, number: int, config: Mapping[str, Any]) -> Steps[Any]:
        """Ask one model. `config` are the parameters of the request and of the wrapper."""
        client = cast(ModelClient, self._clients[number])
        params = request_parameters(fill_messages(config))
        cache = _cache_of(config)
        response = None if cache is None else kept_answer(cache, params)
        is_cached = response is not None
        log = functools.partial(
            log_chat_completion,
            client=client,
            wrapper=self,
            agent=config.get("agent"),
            request=params,
            start_time=now(),
        )
        if not is_cached:
            if limit := self._limits[number]:
                yield from limit.wait_steps()
            own = getattr(client, "a_create", None)
            create = Step(client.create, own) if own else in_thread(client.create)
            try:
                response = yield from create(params)
            except ModelError as error:
                log(response=f"config {number} failed: {error}", is_cached=False)
                raise
            response.cost = self._cost(number, client, response)
            if cache is not None:
                keep_answer(cache, params, response)
        log(response=response, is_cached=is_cached)
        response.message_retrieval_function = client.message_retrieval
        is_free = is_cached or getattr(response, "is_cached", False)
        self._count(client.get_usage(response), is_cached=is_free)
        return response

    def _cost(self, number: int, client: ModelClient, response: Any) -> float:
        price = self._prices[number]
        if price is None:
            return client.cost(response)
        return price.cost(response.usage.prompt_tokens, response.usage.completion_tokens)

    def _count(self, usage: Mapping[str, Any], *, is_cached: bool) -> None:
        if not usage:
            return
        self.total_usage_summary = with_usage(self.total_usage_summary, usage)
        if not is_cached:
            self.actual_usage_summary = with_usage(self.actual_usage_summary, usage)

    def _require_registered_clients(self) -> None:
        names = [one.class_name for one in self._clients if isinstance(one, PlaceHolderClient)]
        if names:
            raise RuntimeError(
                f"Model client(s) {names} are not activated. Please register the custom model "
                "clients using `register_model_client` or filter them out form the config list."
            )

    def register_model_client(self, model_client_cls: type[Any], **kwargs: Any) -> None:
        """Use `model_client_cls`, a `ModelClient`, for the next entry that names it.

        It is created with the entry and `kwargs`. Raise `ValueError` if no entry names it.
        """
        name = model_client_cls.__name__
        for number, client in enumerate(self._clients):
            if isinstance(client, PlaceHolderClient) and client.class_name == name:
                self._clients[number] = model_client_cls(client.config, **kwargs)
                return
        if any(type(client) is model_client_cls for client in self._clients):
            _logger.warning(
                "Model client %s is already registered. Add more entries in the config_list to "
                "use multiple model clients.",
                name,
            )
            return
        raise ValueError(
            f'Model client "{name}" is being registered but was not found in the config_list. '
            f'Please make sure to include an entry in the config_list with "model_client_cls": '
            f'"{name}"'
        )

    def with_config(self, **config: Any) -> Self:
        """Return a wrapper with the settings `config`, and the clients and the usage of this one.

        An entry of the new list has the client of the entry at the same place in this list.
        """
        wrapper = type(self)(**config)
        count = min(len(wrapper._clients), len(self._clients))
        wrapper._clients[:count] = self._clients[:count]
        wrapper.actual_usage_summary = self.actual_usage_summary
        wrapper.total_usage_summary = self.total_usage_summary
        return wrapper

    @staticmethod
    def extract_text_or_completion_object(response: Any) -> list[Any]:
        """Return the texts of `response`; the messages, if they call tools."""
        return response.message_retrieval_function(response)

    @staticmethod
    def instantiate(
        template: Template,
        context: Context | None = None,
        allow_format_str_template: bool | None = False,
    ) -> str | None:
        """Return `template` with the values of `context`. See `templates.instantiate`."""
        return instantiate(template, context, allow_format_str_template)

    def print_usage_summary(self, mode: str | list[str] | None = None) -> None:
        """Print the usage of all models: without the answers of caches ("actual"), or with them
        ("total"). None means both. Raise `ValueError` for another mode.
        """
        both = ["actual", "total"]
        print_summaries(
            self.actual_usage_summary, self.total_usage_summary, both if mode is None else mode
        )

    def clear_usage_summary(self) -> None:
        """Count the usage from 0."""
        self.actual_usage_summary = None
        self.total_usage_summary = None


def _open(entry: ModelConfig) -> ModelClient | PlaceHolderClient:
    if (name := entry.get("model_client_cls")) is None:
        is_given = entry.get("model_client") is not None
        client = client_of(entry)
        model = str(entry.get("model") or (type(client).__name__ if is_given else ""))
        return ChatModelClient(client, model, expects_price=not is_given)
    _logger.info(
        "Detected custom model client in config: %s, model client can not be used until "
        "register_model_client is called.",
        name,
    )
    return PlaceHolderClient(entry)


def _cache_of(config: Mapping[str, Any]) -> AbstractCache | None:
    if (cache := config.get("cache")) is not None:
        return cache
    is_given = config.get("model_client") is not None
    seed = config.get("cache_seed", None if is_given else LEGACY_DEFAULT_CACHE_SEED)
    return None if seed is None else Cache.disk(seed, LEGACY_CACHE_DIR)
