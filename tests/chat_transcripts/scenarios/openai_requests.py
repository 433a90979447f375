"""What OpenAI and Azure are asked over the network, and what becomes of their answers."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HELLO = [{"role": "user", "content": "Hi", "name": "ann"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}


class Service(BaseHTTPRequestHandler):
    """Answers with the next of `answers`, and keeps what it was asked."""

    answers = []
    asked = []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        secret = self.headers["Authorization"] or self.headers["Api-Key"]
        self.asked.append([self.path, secret, body])
        status, answer = self.answers.pop(0)
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Print nothing."""


@contextmanager
def service():
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def answer(content="Hey", model="gpt-4o", **message):
    fields = {"role": "assistant", "content": content, **message}
    return 200, {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "finish_reason": "stop", "message": fields}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
    }


def run(lib):
    with service() as url:
        settings = {"model": "gpt-4o", "api_key": "sk-1", "base_url": url, "max_retries": 0}
        for scenario in (parameters, agents, entries, azure):
            yield from scenario(lib, settings)
            for path, secret, body in Service.asked:
                yield path, secret
                yield from body.pop("messages")
                yield body
            Service.asked.clear()


def parameters(lib, settings):
    asker = lib.OpenAIWrapper(
        config_list=[{**settings, "temperature": 0.5, "tags": ["a"], "price": [1, 2]}],
        cache_seed=None,
        top_p=0.25,
        timeout=30,
    )
    Service.answers += [answer(), answer()]
    response = asker.create(messages=HELLO, temperature=1, max_tokens=9, agent="me")
    yield response.choices[0].message.content, response.cost, response.usage.total_tokens
    yield lib.OpenAIWrapper.extract_text_or_completion_object(response)
    asker.create(messages=HELLO, tools=[TOOL], tool_choice="auto", context={"a": 1})
    asker.print_usage_summary()


def agents(lib, settings):
    a = lib.ConversableAgent(
        "a",
        system_message="Be brief.",
        llm_config={"config_list": [settings], "cache_seed": None, "tools": [TOOL]},
        human_input_mode="NEVER",
    )
    b = lib.ConversableAgent("b", llm_config=False, human_input_mode="NEVER")

    def add(a: int) -> int:
        return a + 1

    b.register_for_execution(name="add")(add)
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    Service.answers += [answer(None, tool_calls=[call]), answer("2"), answer("Bye")]
    result = b.initiate_chat(a, message="1 + 1?", max_turns=2)
    yield result.chat_history
    yield result.cost
    again = {"max_turns": 1, "clear_history": False}
    yield b.initiate_chat(a, message="Thanks.", **again).summary


def entries(lib, settings):
    asker = lib.OpenAIWrapper(
        config_list=[settings, {**settings, "model": "gpt-4"}, {**settings, "model": "gpt-4o-mini"}]
    )
    Service.answers += [(400, {"error": {"message": "No."}}), (429, {"error": {"message": "No."}})]
    Service.answers += [answer("third", model="gpt-4o-mini")]
    response = asker.create(messages=HELLO)
    yield response.config_id, response.model, response.cost
    yield asker.create(messages=HELLO, cache_seed=41).config_id
    asker.print_usage_summary()


def azure(lib, settings):
    for entry in (
        {"model": "gpt-3.5-turbo", "base_url": settings["base_url"]},
        {"model": "m", "azure_endpoint": settings["base_url"], "azure_deployment": "my.own"},
    ):
        entry |= {"api_type": "azure", "api_key": "az", "api_version": "2024-02-01"}
        Service.answers.append(answer(model="gpt-35-turbo"))
        asker = lib.OpenAIWrapper(config_list=[entry], cache_seed=None)
        yield asker.create(messages=HELLO).choices[0].message.content
