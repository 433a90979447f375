"""The functions of `code_utils`."""

import os

from scripted import outcome

FENCE = "```"


def run(lib):
    yield from texts(lib)
    yield from contents(lib)
    yield from executions(lib)
    yield lib.UNKNOWN, lib.DEFAULT_MODEL, lib.FAST_MODEL, lib.TIMEOUT_MSG
    for value in ("1", "True", "yes", "t", "0", "no", "F", "none", "", "x"):
        os.environ["AUTOGEN_USE_DOCKER"] = value
        yield value, outcome(lib.decide_use_docker, None)


def texts(lib):
    for text in (
        f"a\n{FENCE}python\nx=1\n{FENCE}\nb",
        f"{FENCE}py\na\n{FENCE}\n{FENCE}\nls\n{FENCE}",
        f"{FENCE}python\r\nx\r\n{FENCE}",
        f"  {FENCE}python\n  x\n  {FENCE}",
        f"{FENCE}\n\nx\n\n{FENCE}",
        f"{FENCE}python\nx",
        "use `x=1` and `y`",
        "no code",
        "",
        None,
    ):
        yield text, lib.extract_code(text)
        yield lib.extract_code(text, detect_single_line_code=True)
        blocks = lib.MarkdownCodeExtractor().extract_code_blocks(text)
        yield [(block.language, block.code) for block in blocks]
    yield lib.extract_code("<c>x</c>", pattern="<(c)>(.*?)</c>")
    for code in ("print(1)", "python a.py", "pip install x", "python3 x.py", "for i in x", ""):
        yield code, lib.infer_lang(code)


def contents(lib):
    image = {"type": "image_url", "image_url": {"url": "u"}}
    for content in (None, "a", [{"type": "text", "text": "a"}, image], [], ["a"], [{"type": "x"}]):
        yield outcome(lib.content_str, content)
    for content in (5, [{"text": "a"}], {"type": "text"}, [{"type": "text"}]):
        yield outcome(lib.content_str, content)


def executions(lib):
    options = {"work_dir": "coding", "use_docker": False}
    yield outcome(lib.execute_code)
    for arguments in (
        {"code": "print('hi')"},
        {"code": "print('hi')", "filename": "sub/a.py"},
        {"filename": "sub/a.py"},
        {"code": "print(1/0)"},
        {"code": "print('out'); import sys; sys.exit('err')"},
        {"code": "import time; time.sleep(10)", "timeout": 1},
        {"code": "echo 1; echo 2 >&2", "lang": "sh"},
        {"code": "puts 1", "lang": "ruby"},
    ):
        yield arguments, outcome(lib.execute_code, **arguments, **options)
