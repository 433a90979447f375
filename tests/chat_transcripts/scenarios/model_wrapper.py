"""OpenAIWrapper with a class of one's own, caches, usage, filters and lists of configurations."""

import json
import os
import pathlib
from types import SimpleNamespace

from scripted import ScriptedModel, model_config, outcome

HELLO = [{"role": "user", "content": "Hi"}]


def run(lib):
    yield from registration(lib)
    yield from usage(lib)
    yield from caches(lib)
    yield from filters(lib)
    yield from templates(lib)
    yield from agents(lib)
    yield from configurations(lib)


def wrapper(lib, *replies, **options):
    asker = lib.OpenAIWrapper(**{**model_config(*replies), **options})
    asker.register_model_client(ScriptedModel)
    return asker


def text(lib, response):
    return lib.OpenAIWrapper.extract_text_or_completion_object(response)


def registration(lib):
    asker = lib.OpenAIWrapper(**model_config("one", "two"))
    yield outcome(asker.create, messages=HELLO)
    yield outcome(asker.register_model_client, SimpleNamespace)
    asker.register_model_client(ScriptedModel)
    asker.register_model_client(ScriptedModel)
    response = asker.create(messages=HELLO)
    yield text(lib, response)
    yield response.cost, response.config_id, response.pass_filter, response.model
    asker = lib.OpenAIWrapper(config_list=model_config("one")["config_list"] * 2, cache_seed=None)
    asker.register_model_client(ScriptedModel)
    yield outcome(asker.create, messages=HELLO)
    yield outcome(lib.OpenAIWrapper(**model_config()).print_usage_summary)


def usage(lib):
    asker = wrapper(lib, "one", "two", "three")
    asker.create(messages=HELLO)
    yield asker.actual_usage_summary, asker.total_usage_summary
    asker.print_usage_summary()
    asker.create(messages=HELLO)
    for mode in ("actual", "total", ["total"], ["actual", "total"], ["total", "actual"]):
        asker.print_usage_summary(mode)
    asker.clear_usage_summary()
    yield asker.actual_usage_summary, asker.total_usage_summary
    asker.print_usage_summary()


def caches(lib):
    asker = wrapper(lib, "one", "two", "three", cache_seed=7)
    yield text(lib, asker.create(messages=HELLO))
    yield text(lib, asker.create(messages=HELLO))
    yield text(lib, asker.create(messages=HELLO, temperature=1))
    asker.print_usage_summary()
    asker.clear_usage_summary()
    yield asker.create(messages=HELLO).cost
    asker.print_usage_summary()
    asker.print_usage_summary("actual")
    yield os.path.isdir(".cache/7")
    with lib.Cache.disk(cache_seed=8, cache_path_root="other") as cache:
        yield text(lib, asker.create(messages=HELLO, cache=cache))
        yield text(lib, asker.create(messages=HELLO, cache=cache))
        cache.set("key", {"a": [1, None]})
        yield cache.get("key"), cache.get("no"), cache.get("no", 5)
    yield sorted(os.listdir("other")), outcome(lib.Cache, {"place": "x"})


def filters(lib):
    entries = [*model_config("bad")["config_list"], *model_config("good")["config_list"]]
    asker = lib.OpenAIWrapper(config_list=entries, cache_seed=None)
    asker.register_model_client(ScriptedModel)
    asker.register_model_client(ScriptedModel)

    def is_good(context, response):
        return text(lib, response) == [context["wanted"]]

    response = asker.create(messages=HELLO, context={"wanted": "good"}, filter_func=is_good)
    yield text(lib, response), response.config_id, response.pass_filter
    response = wrapper(lib, "bad").create(
        messages=HELLO, context={"wanted": "good"}, filter_func=is_good
    )
    yield text(lib, response), response.config_id, response.pass_filter


def templates(lib):
    asker = wrapper(lib, *"abcd")
    template = [{"role": "user", "content": "Hi {x}"}]
    asker.create(messages=template, context={"x": 1})
    asker.create(messages=template, context={"x": 1}, allow_format_str_template=True)
    asker.create(
        messages=[{"role": "user", "content": lambda context: f"x is {context['x']}"}],
        context={"x": 1},
    )
    yield template
    instantiate = lib.OpenAIWrapper.instantiate
    yield [instantiate("{x}", {"x": 1}), instantiate("{x}", {"x": 1}, True), instantiate(None)]
    yield outcome(instantiate, "{y}", {"x": 1}, True)


def agents(lib):
    no_model = lib.AssistantAgent("a", llm_config=False)
    yield no_model.generate_oai_reply(messages=HELLO)
    yield no_model.get_actual_usage(), no_model.get_total_usage()
    no_model.print_usage_summary()
    for config in ({}, {"config_list": []}, {"config_list": [{"model": ""}]}, "gpt-4"):
        yield outcome(lib.AssistantAgent, "a", llm_config=config)
    yield lib.AssistantAgent("a").llm_config
    calls = [{"id": "1", "type": "function", "function": {"name": "a b", "arguments": "{}"}}]
    agent = lib.ConversableAgent("a", llm_config=model_config({"tool_calls": calls}, "Hey", "Ho"))
    agent.register_model_client(ScriptedModel)
    yield agent.generate_oai_reply(messages=HELLO)
    results = [{"role": "tool", "tool_call_id": "1", "content": "42"}]
    said = {"role": "user", "content": "Stop", "name": "ann", "tool_responses": results}
    messages = [{"role": "tool", "content": "42", "tool_responses": results}, said]
    yield agent.generate_oai_reply(messages=messages)
    yield messages
    templated = [{"role": "user", "content": "{x}", "context": {"x": 1}}]
    yield agent.generate_oai_reply(messages=templated)
    yield templated
    yield lib.gather_usage_summary([agent, agent, no_model])
    agent.print_usage_summary("actual")


def configurations(lib):
    entries = [
        {"model": "gpt-4", "api_key": "a", "tags": ["x", "y"]},
        {"model": "gpt-3.5-turbo", "api_key": "b", "api_type": "azure"},
        {"api_key": "c"},
    ]
    for wanted in (
        None,
        {"model": ["gpt-4", None]},
        {"tags": ["y", "z"]},
        {"tags": [None]},
        {"api_type": ["azure"], "model": ["gpt-4"]},
        {"colour": ["red"]},
    ):
        yield lib.filter_config(entries, wanted)
        yield lib.filter_config(entries, wanted, exclude=True)
    pathlib.Path("LIST").write_text(json.dumps(entries))
    here = os.getcwd()
    yield lib.config_list_from_json("LIST", file_location=here, filter_dict={"model": ["gpt-4"]})
    yield type(outcome(lib.config_list_from_json, "NO_LIST")).__name__
    os.environ["OPENAI_API_KEY"] = "k1\nk2"
    os.environ["AZURE_OPENAI_API_KEY"] = "z"
    os.environ["AZURE_OPENAI_API_BASE"] = "b"
    yield lib.config_list_from_models(model_list=["m", "n"], exclude="aoai")
    yield lib.config_list_gpt4_gpt35(exclude="openai")
    yield lib.config_list_openai_aoai()
    yield lib.get_config_list(["a", ""], ["u", "v"], "azure", "w")
    yield outcome(lib.get_config_list, ["a"], ["u", "v"])
    yield lib.config_list_from_dotenv("no.env", {"m": "AZURE_OPENAI_API_KEY", "n": "NO_KEY"})
