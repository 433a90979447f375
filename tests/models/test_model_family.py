"""What is known of the services' models."""

from __future__ import annotations

from cellblock.models import ModelFamily
from cellblock.models.model_family import anthropic_model, openai_model


def test_models_of_openai_are_known_by_the_beginning_of_the_name() -> None:
    expected = {
        "gpt-4o": (ModelFamily.GPT_4O, 128000),
        "gpt-4o-mini-2024-07-18": (ModelFamily.GPT_4O, 128000),
        "gpt-4.1-nano": (ModelFamily.GPT_41, 1047576),
        "gpt-4-0613": (ModelFamily.GPT_4, 8192),
        "gpt-4-turbo-2024-04-09": (ModelFamily.GPT_4, 128000),
        "gpt-3.5-turbo": (ModelFamily.GPT_35, 16385),
        "o3-mini-2025-01-31": (ModelFamily.O3, 200000),
        "gpt-5-mini": (ModelFamily.GPT_5, 400000),
    }
    known = {name: openai_model(name) for name in expected}
    found = {
        name: model and (model.info["family"], model.context_window)
        for name, model in known.items()
    }
    assert found == expected
    assert all(ModelFamily.is_openai(family) for family, _ in expected.values())


def test_models_of_others_are_known_by_openais_protocol() -> None:
    for name, family in (
        ("gemini-2.0-flash-lite-preview-02-05", ModelFamily.GEMINI_2_0_FLASH),
        ("claude-3-5-sonnet-20241022", ModelFamily.CLAUDE_3_5_SONNET),
        ("Llama-4-Scout-17B-16E-Instruct-FP8", ModelFamily.LLAMA_4_SCOUT),
    ):
        known = openai_model(name)
        assert known, name
        assert known.info["family"] == family
        is_joined = known.info.get("multiple_system_messages")
        assert is_joined is not ModelFamily.is_gemini(family), name


def test_the_longest_name_decides() -> None:
    new, old = openai_model("gpt-4o-2024-08-06"), openai_model("gpt-4o-2024-05-13")
    assert new
    assert old
    assert (new.info["structured_output"], old.info["structured_output"]) == (True, False)


def test_models_of_anthropic_are_known() -> None:
    known = anthropic_model("claude-sonnet-4-20250514")
    assert known
    assert known.info["family"] == ModelFamily.CLAUDE_4_SONNET
    assert ModelFamily.is_claude(known.info["family"])


def test_other_models_are_not_known() -> None:
    names = ("gpt-4other", "llama", "", "gpt")
    assert [openai_model(name) or anthropic_model(name) for name in names] == [None] * 4


def test_a_family_belongs_to_one_company() -> None:
    assert ModelFamily.is_gemini(ModelFamily.GEMINI_2_0_FLASH)
    assert ModelFamily.is_llama(ModelFamily.LLAMA_4_SCOUT)
    assert ModelFamily.is_mistral(ModelFamily.PIXTRAL)
    assert not ModelFamily.is_openai(ModelFamily.UNKNOWN)
