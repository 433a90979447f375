"""Find what a program uses of AutoGen: names, calls, methods, settings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ..modules import TOP_MODULES
from ..names import public_names, submodules

CODE_CONFIG = "code_execution_config"
CODE_CONFIG_KEY = f"key of {CODE_CONFIG}"
"""The name of settings whose value is a key of a `code_execution_config` without an executor."""


@dataclass(frozen=True)
class Reference:
    """A name of AutoGen at a line, such as `autogen.coding.CodeBlock`.

    `attributes` follow the name: `("disk",)` of `Cache.disk`; `method` says that an instance has
    them. `call` is None if the name is not called. `overrides` are what a subclass defines.
    """

    name: str
    line: int
    attributes: tuple[str, ...] = ()
    method: bool = False
    call: ast.Call | None = None
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setting:
    """A key of a dict or a keyword, such as `"use_docker": False`. None: the value is computed."""

    key: str
    value: object
    line: int


class ReferenceFinder(ast.NodeVisitor):
    """Collect the references and settings of one program, whose cells share their names."""

    def __init__(self) -> None:
        self.references: list[Reference] = []
        self.settings: list[Setting] = []
        self._names: dict[str, str] = {}  # local name -> module or name of AutoGen
        self._instances: dict[str, str] = {}  # variable -> class of AutoGen
        self._subclasses: dict[str, str] = {}  # class of the program -> class of AutoGen

    def visit_Import(self, node: ast.Import) -> None:
        """Note `import autogen.coding as coding`."""
        for alias in node.names:
            top = alias.name.partition(".")[0]
            if top in TOP_MODULES:
                self.references.append(Reference(alias.name, node.lineno))
                self._names[alias.asname or top] = alias.name if alias.asname else top

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Note `from autogen import X as Y`."""
        module = node.module or ""
        if node.level or module.partition(".")[0] not in TOP_MODULES:
            return
        for alias in node.names:
            if alias.name == "*":
                self.references.append(Reference(module, node.lineno))
                self._names.update({name: f"{module}.{name}" for name in public_names(module)})
                continue
            name = f"{module}.{alias.name}"
            self.references.append(Reference(name, node.lineno))
            self._names[alias.asname or alias.name] = name

    def visit_Assign(self, node: ast.Assign) -> None:
        """Note `agent = ConversableAgent(…)`."""
        self._bind_instance(node.targets, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Note `agent: ConversableAgent = ConversableAgent(…)`."""
        self._bind_instance([node.target], node.value)
        self.generic_visit(node)

    def visit_withitem(self, node: ast.withitem) -> None:
        """Note `with LocalCommandLineCodeExecutor() as executor`."""
        if node.optional_vars is not None:
            self._bind_instance([node.optional_vars], node.context_expr)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Visit a function, whose parameters are other variables than those around it."""
        outer = dict(self._instances)
        arguments = node.args
        for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            self._instances.pop(each.arg, None)
        self.generic_visit(node)
        self._instances = outer

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Note what a subclass of a class of AutoGen overrides, each at its line."""
        for base in node.bases:
            reference = self._resolve(base)
            own = self._subclasses.get(base.id) if isinstance(base, ast.Name) else None
            if (name := own or (reference and reference.name)) is not None:
                self._subclasses[node.name] = name
                self.references += [
                    Reference(name, line, overrides=(attribute,))
                    for attribute, line in _unused_definitions(node)
                ]
        self.generic_visit(node)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        """Visit a loop, whose variable has other values than before."""
        for name in ast.walk(node.target):
            if isinstance(name, ast.Name):
                self._instances.pop(name.id, None)
        self.generic_visit(node)

    visit_AsyncFor = visit_For

    def visit_Call(self, node: ast.Call) -> None:
        """Note the call of a name or method of AutoGen, and its keywords."""
        for keyword in node.keywords:
            self._add_setting(keyword.arg, keyword.value)
        reference = self._resolve(node.func, node) or self._resolve_method(node)
        if reference is None:
            self.visit(node.func)
        else:
            self.references.append(reference)
        for child in [*node.args, *node.keywords]:
            self.visit(child)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Note `autogen.coding.CodeBlock`."""
        if (reference := self._resolve(node)) is not None:
            self.references.append(reference)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Note a name that was imported."""
        if isinstance(node.ctx, ast.Load) and (reference := self._resolve(node)) is not None:
            self.references.append(reference)

    def visit_Dict(self, node: ast.Dict) -> None:
        """Note the keys of a dict."""
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                self._add_setting(key.value, value)
        self.generic_visit(node)

    def _add_setting(self, key: str | None, value: ast.expr) -> None:
        if key is not None:
            constant = value.value if isinstance(value, ast.Constant) else None
            if key == CODE_CONFIG and isinstance(value, ast.Dict):
                self._add_code_config(value)
            else:
                self.settings.append(Setting(key, constant, value.lineno))

    def _add_code_config(self, config: ast.Dict) -> None:
        keys = [key for key in config.keys if isinstance(key, ast.Constant)]
        if "executor" not in [key.value for key in keys]:
            self.settings += [Setting(CODE_CONFIG_KEY, key.value, key.lineno) for key in keys]

    def _bind_instance(self, targets: list[ast.expr], value: ast.expr | None) -> None:
        reference = self._resolve(value.func) if isinstance(value, ast.Call) else None
        for target in targets:
            if not isinstance(target, ast.Name):
                continue
            if reference is None or reference.attributes:
                self._instances.pop(target.id, None)
            else:
                self._instances[target.id] = reference.name

    def _resolve_method(self, call: ast.Call) -> Reference | None:
        function = call.func
        if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
            return None
        if (cls := self._instances.get(function.value.id)) is None:
            return None
        return Reference(cls, call.lineno, (function.attr,), method=True, call=call)

    def _resolve(self, node: ast.expr, call: ast.Call | None = None) -> Reference | None:
        """Return what a dotted name stands for, if its first part is of AutoGen."""
        parts = list(_dotted_parts(node))
        if not parts or (name := self._names.get(parts[0])) is None:
            return None
        rest = parts[1:]
        while rest and rest[0] in submodules(name):
            name = f"{name}.{rest.pop(0)}"
        if rest and (submodules(name) or public_names(name)):
            name = f"{name}.{rest.pop(0)}"
        return Reference(name, node.lineno, tuple(rest), call=call)


def _unused_definitions(node: ast.ClassDef) -> Iterator[tuple[str, int]]:
    """Yield what a class defines, with its lines, but nothing that another method of it uses."""
    for item in node.body:
        match item:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names = [name]
            case ast.Assign(targets=targets):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case _:
                names = []
        others = [other for other in node.body if other is not item]
        used = {
            part.attr
            for other in others
            for part in ast.walk(other)
            if isinstance(part, ast.Attribute)
        }
        yield from ((name, item.lineno) for name in names if name not in used)


def _dotted_parts(node: ast.expr) -> Iterator[str]:
    """Yield the parts of `a.b.c`, and of `a[T].b`; nothing for another expression."""
    parts: list[str] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        elif not isinstance(node, ast.Subscript):
            return
        node = node.value
    yield node.id
    yield from reversed(parts)
