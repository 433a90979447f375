"""Tools that a model can call: functions, and code execution."""

from .base import BaseTool
from .code_execution import CodeExecutionInput, CodeExecutionResult, PythonCodeExecutionTool
from .code_session import CodeSessionResult, CodeSessionTool
from .function_tool import FunctionTool
from .tool_result import ImageResultContent, TextResultContent, ToolResult
from .workbench import StaticWorkbench, ToolOverride, Workbench

__all__ = [
    "BaseTool",
    "CodeExecutionInput",
    "CodeExecutionResult",
    "CodeSessionResult",
    "CodeSessionTool",
    "FunctionTool",
    "ImageResultContent",
    "PythonCodeExecutionTool",
    "StaticWorkbench",
    "TextResultContent",
    "ToolOverride",
    "ToolResult",
    "Workbench",
]
