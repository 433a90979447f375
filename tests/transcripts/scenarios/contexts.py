"""What each context shows a model of a conversation with tool calls."""

from collections.abc import AsyncGenerator
from typing import Any


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    def user(text: str) -> Any:
        return lib.UserMessage(content=text, source="user")

    def calls(number: int) -> Any:
        call = lib.FunctionCall(id=str(number), name="add", arguments="{}")
        return lib.AssistantMessage(content=[call], source="assistant")

    def results(number: int) -> Any:
        result = lib.FunctionExecutionResult(
            content="3", name="add", call_id=str(number), is_error=False
        )
        return lib.FunctionExecutionResultMessage(content=[result])

    def answer(text: str) -> Any:
        return lib.AssistantMessage(content=text, source="assistant", thought="hm")

    talk = [user("a b c"), calls(1), results(1), answer("d e"), user("f"), calls(2), results(2)]
    client = lib.ReplayChatCompletionClient(["one"])
    for context in (
        lib.UnboundedChatCompletionContext(),
        lib.BufferedChatCompletionContext(buffer_size=1),
        lib.BufferedChatCompletionContext(buffer_size=2),
        lib.BufferedChatCompletionContext(5, initial_messages=[user("initial")]),
        lib.HeadAndTailChatCompletionContext(head_size=1, tail_size=2),
        lib.HeadAndTailChatCompletionContext(head_size=2, tail_size=1),
        lib.HeadAndTailChatCompletionContext(head_size=3, tail_size=4),
        lib.TokenLimitedChatCompletionContext(client, token_limit=3),
        lib.TokenLimitedChatCompletionContext(client, token_limit=2),
        lib.TokenLimitedChatCompletionContext(client),
    ):
        yield f"{type(context).__name__}, its messages, and the same after load_state and clear:"
        for message in talk:
            await context.add_message(message)
        for message in await context.get_messages():
            yield message
        state = await context.save_state()
        yield list(state)
        await context.clear()
        yield len(await context.get_messages())
        await context.load_state(state)
        yield len(await context.get_messages())
        saved = context.dump_component()
        yield saved.component_type
        if not isinstance(context, lib.TokenLimitedChatCompletionContext):
            yield saved.config
        yield type(type(context).load_component(saved)).__name__
    for make in (
        lambda: lib.BufferedChatCompletionContext(0),
        lambda: lib.HeadAndTailChatCompletionContext(0, 1),
        lambda: lib.HeadAndTailChatCompletionContext(1, -1),
        lambda: lib.TokenLimitedChatCompletionContext(client, token_limit=0),
    ):
        try:
            make()
        except ValueError as error:
            yield error
