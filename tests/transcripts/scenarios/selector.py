"""A model or a function chooses the speaker; wrong answers; candidates; streaming."""

from collections.abc import AsyncGenerator
from typing import Any


class Lab:
    """Creates teams with scripted models, and keeps what the models were asked."""

    def __init__(self, lib: Any) -> None:
        class Echo(lib.BaseChatAgent):
            produced_message_types = (lib.TextMessage,)

            async def on_messages(self, messages: Any, cancellation_token: Any) -> Any:
                seen = [f"{each.source}:{each.to_model_text()[:4]}" for each in messages]
                message = lib.TextMessage(content=f"{seen}", source=self.name)
                return lib.Response(chat_message=message)

            async def on_reset(self, cancellation_token: Any) -> None:
                pass

        class Recorder(lib.ReplayChatCompletionClient):
            async def create(self, messages: Any, **arguments: Any) -> Any:
                questions.append(list(messages))
                return await super().create(messages, **arguments)

        self.lib = lib
        self.questions = questions = list[Any]()
        self.agent_class = Echo
        self.model_class = Recorder

    def create(self, answers: list[str], **arguments: Any) -> Any:
        participants = [
            self.agent_class("story_writer", "writes\n  stories"),
            self.agent_class("critic", "judges"),
            self.agent_class("c", ""),
        ]
        return self.lib.SelectorGroupChat(participants, self.model_class(answers), **arguments)


async def by_model(lab: Lab) -> AsyncGenerator[Any, None]:
    answers = ["critic", "The story writer.", r"story\_writer", "nobody", "critic or c", "C c"]
    team = lab.create(answers, max_turns=3, emit_team_events=True)
    yield team.name
    async for item in team.run_stream(task="Go"):
        yield item

    team = lab.create(["x"] * 6, max_turns=2)
    yield await team.run(task="never a name: the first one")
    team = lab.create(["critic", "x", "x"], max_turns=2, max_selector_attempts=2)
    yield await team.run(task="then the previous one")

    context = lab.lib.BufferedChatCompletionContext(buffer_size=1)
    team = lab.create(["critic", "c"], max_turns=2, model_context=context)
    yield await team.run(task="only the last message")
    team = lab.create(["c", "c", "c"], max_turns=3, allow_repeated_speaker=True)
    yield await team.run(task="repeated")
    await team.reset()

    team = lab.create(
        ["critic", "c"],
        max_turns=2,
        selector_func=lambda messages: None,
        candidate_func=lambda messages: ["c", "critic"],
        selector_prompt="{roles}|{participants}|{history}",
    )
    yield await team.run(task=[lab.lib.TextMessage(content="candidates", source="me")])


async def by_function(lab: Lab) -> AsyncGenerator[Any, None]:
    async def alone(messages: Any) -> list[str]:
        return ["c"]

    async def select(messages: Any) -> str:
        return ["c", "critic"][len(messages) % 2]

    team = lab.create([], max_turns=2, candidate_func=alone)
    yield await team.run(task="one candidate")
    team = lab.create([], max_turns=2, selector_func=select)
    yield await team.run(task="function")


async def stream(lab: Lab) -> AsyncGenerator[Any, None]:
    team = lab.create(
        ["the critic", "c"], max_turns=2, model_client_streaming=True, emit_team_events=True
    )
    async for item in team.run_stream(task="stream"):
        yield item
    team = lab.create(["the critic", "c"], max_turns=2, model_client_streaming=True)
    async for item in team.run_stream(task="silent stream"):
        yield item
    state = await team.save_state()
    yield state["agent_states"]["SelectorGroupChatManager"]["previous_speaker"]
    team = lab.create(["critic"], max_turns=1)
    await team.load_state(state)
    yield await team.run()


async def refuse(lab: Lab) -> AsyncGenerator[Any, None]:
    for functions in (
        {"selector_func": lambda messages: "who"},
        {"candidate_func": lambda messages: []},
        {"candidate_func": lambda messages: ["who"]},
    ):
        team = lab.create(["c"], max_turns=1, **functions)
        try:
            await team.run(task="wrong")
        except Exception as error:
            yield str(error).splitlines()[0]
    try:
        lab.lib.SelectorGroupChat([lab.agent_class("a", "")], lab.model_class([]))
    except ValueError as error:
        yield error


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    lab = Lab(lib)
    for part in (by_model, by_function):
        async for item in part(lab):
            yield item
    for question in lab.questions:
        yield question
    for part in (stream, refuse):
        async for item in part(lab):
            yield item
