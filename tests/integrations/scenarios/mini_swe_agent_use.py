"""Use an environment of mini-swe-agent as it does, and print what comes back."""

from minisweagent.environments import get_environment
from minisweagent.exceptions import Submitted

KIND = "cellblock.integrations.mini_swe_agent.CellblockBashEnvironment"
environment = get_environment({"environment_class": KIND, "timeout": 20, "env": {"A": "5"}})
for command, options in (
    ("echo $A; cat >&2 <<< err; shopt -q extglob || exit 3", {}),
    ("echo partial; sleep 100", {"timeout": 2}),
    ("pwd", {"cwd": "/none"}),
    ("pwd", {"cwd": "/tmp"}),
    ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; false", {}),
):
    done = environment.execute({"command": command}, **options)
    print(repr(done["output"]), done["returncode"], repr(done["exception_info"].partition(": ")[2]))
    if "extra" in done:
        print(done["extra"]["exception_type"])
try:
    environment.execute({"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo the answer"})
except Submitted as done:
    print(done.messages[0]["extra"])
variables = environment.get_template_vars(task="t")
print(variables["task"], variables["system"], "A" in variables)
print(environment.serialize()["info"]["config"]["environment_type"])
environment.cleanup()
print(environment.execute({"command": "true"})["exception_info"].partition(": ")[2][:19])
try:
    get_environment({"environment_class": KIND, "imag": "x"})
except ValueError as error:
    print("unexpected keyword argument 'imag'" in str(error))
environment = get_environment(
    {
        "environment_class": KIND,
        "users": True,
        "user": "root",
        "policy": {"environment": {"B": "6"}},
        "limits": {"open_files": 99},
    }
)
done = environment.execute({"command": "echo $EUID $B; ulimit -n; echo 10.9.8.7 x >> /etc/hosts"})
print(repr(done["output"]), done["returncode"], environment.config.model_dump()["limits"])
environment.cleanup()
environment = get_environment({"environment_class": KIND, "root": "/nowhere"})
print(environment.execute({"command": "true"})["extra"]["exception_type"])
environment.cleanup()
