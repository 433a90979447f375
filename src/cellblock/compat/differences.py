"""What behaves differently here, by AutoGen's version and name."""

from __future__ import annotations

from .modules import TOP_MODULES

_CONTAINERS = (
    "Containers have no network unless network='bridge' is passed, run as you and not as root, and "
    "have a read-only image."
)
_NO_LOG = "Nothing is logged under this name. The events of run_stream say what happens."
_HOST = "Programs end with all their processes at the time limit, and their output is kept."

_VERSION_2 = {
    "LocalCommandLineCodeExecutor": (
        "A refused shell command is a result with exit code 1, and no exception. Output is in the "
        "order it was written, and kept at the time limit."
    ),
    "DockerCommandLineCodeExecutor": "The container runs as you, and not as root.",
    "TextMessageCompressor": "Pass a text_compressor: LLMLingua is not offered.",
    "execute_code": "With use_docker=False the code runs in the sandbox.",
}
_VERSION_7 = {
    "LocalCommandLineCodeExecutor": _HOST,
    "DockerCommandLineCodeExecutor": _CONTAINERS,
    "DockerJupyterCodeExecutor": _CONTAINERS,
    "JupyterCodeExecutor": "The time limit ends the block with exit code 124; the kernel stays.",
    "ACADynamicSessionsCodeExecutor": (
        "A time limit or a cancelled token is a result and no exception. No block runs after one "
        "that fails. sh and bash blocks run."
    ),
    **dict.fromkeys(
        ("Component", "ComponentBase", "ComponentLoader", "ComponentModel"),
        "Only registered classes are loaded, and the one whose load_component is called.",
    ),
    "EVENT_LOGGER_NAME": _NO_LOG,
    "ROOT_LOGGER_NAME": _NO_LOG,
    "TRACE_LOGGER_NAME": _NO_LOG,
    "AgentEvent": "It is the base class of events, and no union.",
    "ChatMessage": "It is the base class of messages, and no union.",
    "Tool": "It is the class BaseTool, and no protocol.",
    "StaticStreamWorkbench": "It is a StaticWorkbench, which does not stream.",
}
_SETTINGS: dict[str, dict[tuple[str, object], str]] = {
    "autogen": {
        ("use_docker", False): (
            'The code runs in the sandbox, with the network on. "sandbox": False runs it on the '
            "host."
        )
    }
}


def difference(name: str) -> str | None:
    """Return what differs about a full name of AutoGen, or None."""
    names = _VERSION_2 if _is_version_2(name) else _VERSION_7
    return names.get(name.rpartition(".")[2])


def setting_difference(top: str, key: str, value: object) -> str | None:
    """Return what differs about a key of a configuration, such as `"use_docker": False`."""
    for (other, constant), note in _SETTINGS.get(top, {}).items():
        if other == key and constant is value:
            return note
    return None


def _is_version_2(name: str) -> bool:
    return name.partition(".")[0] == TOP_MODULES[0]
