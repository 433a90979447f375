"""Two samples of a task of Inspect, each in a sandbox of its own, with a package."""

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, accuracy, scorer
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash, bash_session, python, text_editor
from inspect_ai.util import SandboxEnvironmentSpec, sandbox

from cellblock.integrations.inspect_ai import CellblockConfig, CellblockEnvironment

PROGRAM = "import iniconfig, os; print(open('result').read().strip(), sorted(os.listdir()))"

SERVED = [  # calls of tools for which Inspect starts a server in the sandbox
    ("bash_session", {"action": "type_submit", "input": "export SUM=$((6 + 7))"}),
    ("bash_session", {"action": "type_submit", "input": "echo $SUM"}),
    ("text_editor", {"command": "create", "path": "/workspace/made", "file_text": "made"}),
]


def answer(input, tools, tool_choice, config):
    name = input[0].text
    outputs = [message.text for message in input if message.role == "tool"]
    calls = [
        ("bash", {"command": f"cat given; echo {name} > result; sleep 100"}),
        *(SERVED if name == "two" else []),
        ("python", {"code": PROGRAM}),
    ]
    if len(outputs) < len(calls):
        made = ModelOutput.for_tool_call("mockllm/model", *calls[len(outputs)])
    else:
        made = ModelOutput.from_content("mockllm/model", "Done.")
    made.usage = ModelUsage()
    return made


boxes = []


@scorer(metrics=[accuracy()])
def result_is_target():
    async def score(state, target):
        environment = sandbox()
        boxes.append(environment.as_type(CellblockEnvironment).sandbox)
        return Score(value=(await environment.read_file("result")).strip() == target.text)

    return score


task = Task(
    dataset=[Sample(name, target=name, files={"given": name}) for name in ("one", "two")],
    solver=[use_tools(bash(timeout=3), bash_session(), text_editor(), python()), generate()],
    scorer=result_is_target(),
    sandbox=SandboxEnvironmentSpec("cellblock", CellblockConfig(packages=["iniconfig==2.0.0"])),
)
model = get_model("mockllm/model", custom_outputs=answer)
[log] = eval(task, model=model, display="none")
print(log.status, log.error and log.error.message)
print(log.results.scores[0].metrics["accuracy"].value)
for sample in log.samples:
    tools = [message for message in sample.messages if message.role == "tool"]
    print([message.error and message.error.type for message in tools])
    print(any("13" in message.text for message in tools), tools[-1].text.strip())
print(len({box.id for box in boxes}), [box.closed for box in boxes])
wrong = Task(dataset=[Sample("")], sandbox=SandboxEnvironmentSpec("cellblock", "compose.yaml"))
[log] = eval(wrong, model=model, display="none")
print(log.status, log.error.message)
