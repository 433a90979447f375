"""ModelFamily: names of model families; and what the models of OpenAI and Anthropic can do."""

from __future__ import annotations

from dataclasses import dataclass

from .client import ModelInfo


class ModelFamily:
    """Constants for the field `family` of `ModelInfo`, and questions about a family."""

    GPT_5 = "gpt-5"
    GPT_41 = "gpt-41"
    GPT_45 = "gpt-45"
    GPT_4O = "gpt-4o"
    O1 = "o1"
    O3 = "o3"
    O4 = "o4"
    GPT_4 = "gpt-4"
    GPT_35 = "gpt-35"
    R1 = "r1"
    GEMINI_1_5_FLASH = "gemini-1.5-flash"
    GEMINI_1_5_PRO = "gemini-1.5-pro"
    GEMINI_2_0_FLASH = "gemini-2.0-flash"
    GEMINI_2_5_PRO = "gemini-2.5-pro"
    GEMINI_2_5_FLASH = "gemini-2.5-flash"
    CLAUDE_3_HAIKU = "claude-3-haiku"
    CLAUDE_3_SONNET = "claude-3-sonnet"
    CLAUDE_3_OPUS = "claude-3-opus"
    CLAUDE_3_5_HAIKU = "claude-3-5-haiku"
    CLAUDE_3_5_SONNET = "claude-3-5-sonnet"
    CLAUDE_3_7_SONNET = "claude-3-7-sonnet"
    CLAUDE_4_OPUS = "claude-4-opus"
    CLAUDE_4_SONNET = "claude-4-sonnet"
    LLAMA_3_3_8B = "llama-3.3-8b"
    LLAMA_3_3_70B = "llama-3.3-70b"
    LLAMA_4_SCOUT = "llama-4-scout"
    LLAMA_4_MAVERICK = "llama-4-maverick"
    CODESRAL = "codestral"
    OPEN_CODESRAL_MAMBA = "open-codestral-mamba"
    MISTRAL = "mistral"
    MINISTRAL = "ministral"
    PIXTRAL = "pixtral"
    UNKNOWN = "unknown"

    @staticmethod
    def is_claude(family: str) -> bool:
        """Return True for a family of Anthropic's."""
        return family.startswith("claude-")

    @staticmethod
    def is_gemini(family: str) -> bool:
        """Return True for a family of Google's."""
        return family.startswith("gemini-")

    @staticmethod
    def is_openai(family: str) -> bool:
        """Return True for a family of OpenAI's."""
        return family.startswith("gpt-") or family in {"o1", "o3", "o4"}

    @staticmethod
    def is_llama(family: str) -> bool:
        """Return True for a family of Meta's."""
        return family.startswith("llama-")

    @staticmethod
    def is_mistral(family: str) -> bool:
        """Return True for a family of Mistral's."""
        return family in {"codestral", "open-codestral-mamba", "mistral", "ministral", "pixtral"}


@dataclass(frozen=True)
class KnownModel:
    """What a model can do, and how many tokens a request and its answer may have together."""

    info: ModelInfo
    context_window: int


# First characters of the name, family, context window, abilities: v(ision), f(unction calling),
# j(SON output), s(tructured output). The longest row that fits a name counts.
_OPENAI = """
    gpt-5                   gpt-5      400000   vfjs
    gpt-4.1                 gpt-41     1047576  vfjs
    gpt-4.5                 gpt-45     128000   vfjs
    gpt-4o                  gpt-4o     128000   vfjs
    gpt-4o-2024-05-13       gpt-4o     128000   vfj
    gpt-4o-search           gpt-4o     128000   fjs
    gpt-4o-mini-search      gpt-4o     128000   fjs
    gpt-4-turbo             gpt-4      128000   vfj
    gpt-4-turbo-preview     gpt-4      128000   fj
    gpt-4-0125-preview      gpt-4      128000   fj
    gpt-4-1106-preview      gpt-4      128000   fj
    gpt-4-1106-vision       gpt-4      128000   v
    gpt-4-32k               gpt-4      32768    fj
    gpt-4                   gpt-4      8192     fj
    gpt-3.5-turbo           gpt-35     16385    fj
    gpt-3.5-turbo-0613      gpt-35     4096     fj
    o4-mini                 o4         200000   vfjs
    o3                      o3         200000   vfjs
    o3-mini                 o3         200000   fjs
    o1                      o1         200000   vfjs
    o1-preview              o1         128000   -
    o1-mini                 o1         128000   -
"""
# Models of others behind OpenAI's protocol, with what their services can do by it.
_COMPATIBLE = """
    gemini-1.5-flash        gemini-1.5-flash    1048576  vfjs
    gemini-1.5-pro          gemini-1.5-pro      2097152  vfjs
    gemini-2.0-flash        gemini-2.0-flash    1048576  vfjs
    gemini-2.5-pro          gemini-2.5-pro      1048576  vfjs
    gemini-2.5-flash        gemini-2.5-flash    1048576  vfjs
    claude-3-haiku          claude-3-haiku      200000   vf
    claude-3-sonnet         claude-3-sonnet     200000   vf
    claude-3-opus           claude-3-opus       200000   vf
    claude-3-5-haiku        claude-3-5-haiku    200000   vf
    claude-3-5-sonnet       claude-3-5-sonnet   200000   vf
    claude-3-7-sonnet       claude-3-7-sonnet   200000   vf
    claude-sonnet-4         claude-4-sonnet     200000   vf
    claude-opus-4           claude-4-opus       200000   vf
    Llama-3.3-8B            llama-3.3-8b        128000   fj
    Llama-3.3-70B           llama-3.3-70b       128000   fj
    Llama-4-Scout           llama-4-scout       128000   vfjs
    Llama-4-Maverick        llama-4-maverick    128000   vfjs
"""
# JSON is requested from Claude by a tool or by an instruction.
_ANTHROPIC = """
    claude-3-haiku          claude-3-haiku      200000  vfjs
    claude-3-sonnet         claude-3-sonnet     200000  vfjs
    claude-3-opus           claude-3-opus       200000  vfjs
    claude-3-5-haiku        claude-3-5-haiku    200000  vfjs
    claude-3-5-sonnet       claude-3-5-sonnet   200000  vfjs
    claude-3-7-sonnet       claude-3-7-sonnet   200000  vfjs
    claude-sonnet-4         claude-4-sonnet     200000  vfjs
    claude-4-sonnet         claude-4-sonnet     200000  vfjs
    claude-opus-4           claude-4-opus       200000  vfjs
    claude-4-opus           claude-4-opus       200000  vfjs
    claude-haiku-4          claude-4-haiku      200000  vfjs
"""


def openai_model(name: str) -> KnownModel | None:
    """Return what the model `name` can do by OpenAI's protocol, or None if it is not known."""
    return _find(name, _OPENAI + _COMPATIBLE)


def anthropic_model(name: str) -> KnownModel | None:
    """Return what Anthropic's model `name` can do, or None if the model is not known."""
    return _find(name, _ANTHROPIC)


def _find(name: str, table: str) -> KnownModel | None:
    rows = [row.split() for row in table.splitlines() if row.strip()]
    # "o1-2024-12-17" and "gpt-4o-mini" fit "o1" and "gpt-4o"; "gpt-4other" is another model.
    fitting = [row for row in rows if name == row[0] or name.startswith(f"{row[0]}-")]
    if not fitting:
        return None
    _, family, window, abilities = max(fitting, key=lambda row: len(row[0]))
    info = ModelInfo(
        vision="v" in abilities,
        function_calling="f" in abilities,
        json_output="j" in abilities,
        family=family,
        structured_output="s" in abilities,
        multiple_system_messages=not ModelFamily.is_gemini(family),
    )
    return KnownModel(info, int(window))
