"""An agent of deepagents writes a program, runs it, corrects it and runs it again."""

from deepagents import create_deep_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from cellblock.integrations.deepagents import CellblockBackend
from cellblock.sync import Sandbox


class ScriptedModel(GenericFakeChatModel):
    def bind_tools(self, tools, **options):
        return self


def call(name, **arguments):
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": name}])


answers = [
    call("write_file", file_path="/tmp/task/add.py", content="print(sum(map(int, open(0))) + 1)"),
    call("execute", command="cd /tmp/task; seq 6 7 > numbers; python3 add.py < numbers"),
    call("edit_file", file_path="/tmp/task/add.py", old_string=" + 1", new_string=""),
    call("execute", command="cd /tmp/task; python3 add.py < numbers"),
    call("glob", pattern="*", path="/tmp/task"),
    AIMessage("The sum is 13."),
]
with Sandbox() as sandbox:
    model = ScriptedModel(messages=iter(answers))
    agent = create_deep_agent(model, backend=CellblockBackend(sandbox))
    found = agent.invoke({"messages": "Add 6 and 7 with a program."})["messages"]
    print([message.content.split()[0] for message in found if message.type == "tool"])
    print(found[-1].content, sandbox.exec("ls /tmp/task").stdout_text.split())
