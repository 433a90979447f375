"""AutoGen 0.2's executors: synchronous, with its parameters, over the executors of Cellblock."""

from .base import (
    CodeBlock,
    CodeExecutor,
    CodeExtractor,
    CodeResult,
    CommandLineCodeResult,
    IPythonCodeResult,
)
from .docker_commandline_code_executor import DockerCommandLineCodeExecutor
from .factory import CodeExecutorFactory
from .local_commandline_code_executor import LocalCommandLineCodeExecutor
from .markdown_code_extractor import MarkdownCodeExtractor

__all__ = [
    "CodeBlock",
    "CodeExecutor",
    "CodeExecutorFactory",
    "CodeExtractor",
    "CodeResult",
    "CommandLineCodeResult",
    "DockerCommandLineCodeExecutor",
    "IPythonCodeResult",
    "LocalCommandLineCodeExecutor",
    "MarkdownCodeExtractor",
]
