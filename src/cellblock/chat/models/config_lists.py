"""Lists of model configurations: read from files and environment variables, and filtered."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ...text_files import decode_text
from .config_keys import ModelConfig
from .environment_files import find_environment_file, load_environment_file

_logger = logging.getLogger(__name__)

DEFAULT_AZURE_API_VERSION = "2024-02-01"
_DOTENV_MODELS = {"gpt-4": "OPENAI_API_KEY", "gpt-3.5-turbo": "OPENAI_API_KEY"}


def get_config(
    api_key: str | None,
    base_url: str | None = None,
    api_type: str | None = None,
    api_version: str | None = None,
) -> ModelConfig:
    """Return an entry for `config_list`, without values that are not given."""
    given = {"base_url": base_url, "api_type": api_type, "api_version": api_version}
    return {"api_key": api_key, **{name: value for name, value in given.items() if value}}


def get_config_list(
    api_keys: Sequence[str],
    base_urls: Sequence[str] | None = None,
    api_type: str | None = None,
    api_version: str | None = None,
) -> list[ModelConfig]:
    """Return an entry for each of `api_keys` that is not empty.

    Raise `AssertionError` if there are not as many `base_urls`.
    """
    if base_urls is not None and len(base_urls) != len(api_keys):
        raise AssertionError("The length of api_keys must match the length of base_urls")
    urls: Sequence[str | None] = base_urls or [None] * len(api_keys)
    return [
        get_config(key, url, api_type, api_version)
        for key, url in zip(api_keys, urls, strict=True)
        if key.strip()
    ]


def config_list_openai_aoai(
    key_file_path: str | None = ".",
    openai_api_key_file: str | None = "key_openai.txt",
    aoai_api_key_file: str | None = "key_aoai.txt",
    openai_api_base_file: str | None = "base_openai.txt",
    aoai_api_base_file: str | None = "base_aoai.txt",
    exclude: str | None = None,
) -> list[ModelConfig]:
    """Return entries for OpenAI and for Azure; `exclude` is "openai" or "aoai".

    Keys and addresses are in `OPENAI_API_KEY`, `OPENAI_API_BASE`, `AZURE_OPENAI_API_KEY` and
    `AZURE_OPENAI_API_BASE`, one a line. Each is first set from its file in the folder
    `key_file_path`, if there is one; None reads no files.
    """
    configs: list[ModelConfig] = []
    if exclude != "openai":
        keys = _lines("OPENAI_API_KEY", key_file_path, openai_api_key_file)
        urls = _lines("OPENAI_API_BASE", key_file_path, openai_api_base_file)
        configs += get_config_list(keys or [], urls)
    if exclude != "aoai":
        keys = _lines("AZURE_OPENAI_API_KEY", key_file_path, aoai_api_key_file)
        urls = _lines("AZURE_OPENAI_API_BASE", key_file_path, aoai_api_base_file)
        configs += get_config_list(keys or [], urls, "azure", DEFAULT_AZURE_API_VERSION)
    return configs


def _lines(variable: str, folder: str | None, file: str | None) -> list[str] | None:
    if folder is not None and file is not None and (Path(folder) / file).is_file():
        path = Path(folder) / file
        os.environ[variable] = decode_text(path.read_bytes(), str(path)).strip()
    text = os.environ.get(variable, "").strip()
    return text.splitlines() if text else None


def config_list_from_models(
    key_file_path: str | None = ".",
    openai_api_key_file: str | None = "key_openai.txt",
    aoai_api_key_file: str | None = "key_aoai.txt",
    aoai_api_base_file: str | None = "base_aoai.txt",
    exclude: str | None = None,
    model_list: Sequence[str] | None = None,
) -> list[ModelConfig]:
    """Return the entries of `config_list_openai_aoai` for each model of `model_list`."""
    configs = config_list_openai_aoai(
        key_file_path,
        openai_api_key_file,
        aoai_api_key_file,
        aoai_api_base_file=aoai_api_base_file,
        exclude=exclude,
    )
    if not model_list:
        return configs
    return [{**config, "model": model} for model in model_list for config in configs]


def config_list_gpt4_gpt35(
    key_file_path: str | None = ".",
    openai_api_key_file: str | None = "key_openai.txt",
    aoai_api_key_file: str | None = "key_aoai.txt",
    aoai_api_base_file: str | None = "base_aoai.txt",
    exclude: str | None = None,
) -> list[ModelConfig]:
    """Return the entries of `config_list_openai_aoai` for gpt-4, then for gpt-3.5-turbo."""
    return config_list_from_models(
        key_file_path,
        openai_api_key_file,
        aoai_api_key_file,
        aoai_api_base_file,
        exclude,
        model_list=["gpt-4", "gpt-3.5-turbo"],
    )


def config_list_from_json(
    env_or_file: str,
    file_location: str | None = "",
    filter_dict: Mapping[str, Any] | None = None,
) -> list[ModelConfig]:
    """Return the entries in JSON that pass `filter_dict`; see `filter_config`.

    The JSON, or the path of its file, is in the environment variable `env_or_file`. Without such
    a variable it is in the file of that name in the folder `file_location`. Raise
    `FileNotFoundError` if there is neither, and `ValueError` if it is not a list of objects.
    """
    text = os.environ.get(env_or_file)
    if not text:
        path = Path(file_location or "") / env_or_file
        if not path.exists():
            raise FileNotFoundError(
                f"There is neither an environment variable {env_or_file} nor a file {path}. "
                "Create one of them, with a JSON list of model configurations."
            )
        text = decode_text(path.read_bytes(), str(path))
    elif os.path.isfile(text):  # False for a text that is too long for a path
        text = decode_text(Path(text).read_bytes(), text)
    return filter_config(_parse(text, env_or_file), filter_dict)


def _parse(text: str, source: str) -> list[ModelConfig]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{source} is not JSON: {error}") from error
    entries: list[Any] = cast(list[Any], value) if isinstance(value, list) else [value]
    if not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(
            f"{source} is not a list of model configurations. Write a list of objects, such as "
            '[{"model": "…", "api_key": "…"}].'
        )
    return entries


def config_list_from_dotenv(
    dotenv_file_path: str | None = None,
    model_api_key_map: Mapping[str, Any] | None = None,
    filter_dict: Mapping[str, Any] | None = None,
) -> list[ModelConfig]:
    """Return an entry for each model whose API key is in an environment variable.

    dotenv_file_path    file with variables that are set first; None is `.env` in the current
                        folder or one above
    model_api_key_map   the variable of each model, or a dict with `api_key_env_var`, `base_url`,
                        `api_type` and `api_version`. The variable of gpt-4 and gpt-3.5-turbo, and
                        the one that is not named, is `OPENAI_API_KEY`
    """
    path = find_environment_file() if dotenv_file_path is None else Path(dotenv_file_path)
    if path is None:
        _logger.warning("No .env file found. Loading configurations from environment variables.")
    elif not path.is_file():
        _logger.warning("The specified .env file %s does not exist.", path)
    else:
        load_environment_file(path)
    models = {**(model_api_key_map or {})}
    models |= {name: key for name, key in _DOTENV_MODELS.items() if name not in models}
    found = (_dotenv_config(model, settings) for model, settings in models.items())
    configs = [config for config in found if config is not None]
    if not configs:
        _logger.error("No configurations loaded.")
    return filter_config(configs, filter_dict)


def _dotenv_config(model: str, settings: object) -> ModelConfig | None:
    if not isinstance(settings, str | Mapping):
        _logger.warning("Unsupported type %s for model %s configuration", type(settings), model)
        return None
    fields = (
        {"api_key_env_var": settings}
        if isinstance(settings, str)
        else dict(cast(Mapping[str, Any], settings))
    )
    key = os.environ.get(fields.pop("api_key_env_var", "OPENAI_API_KEY"), "").strip()
    if not key:
        _logger.warning(
            "API key not found or empty for model %s. Please ensure path to .env file is correct.",
            model,
        )
        return None
    return {**get_config(key, **fields), "model": model}


def filter_config(
    config_list: Iterable[ModelConfig],
    filter_dict: Mapping[str, Any] | None,
    exclude: bool = False,
) -> list[ModelConfig]:
    """Return the entries that have, for each key of `filter_dict`, one of its values.

    A list in an entry, such as `tags`, has a value if it contains it. With `exclude`, return the
    entries that have none of the values of any key.
    """
    filters = filter_dict or {}
    if not filters:
        return list(config_list)
    return [
        config
        for config in config_list
        if all(_has(config.get(key), values) is not exclude for key, values in filters.items())
    ]


def _has(value: object, accepted: object) -> bool:
    if value is None:
        return False
    allowed: Collection[object] = (
        [accepted]
        if isinstance(accepted, str) or not isinstance(accepted, Collection)
        else list(cast(Collection[object], accepted))
    )
    values = cast(list[object], value) if isinstance(value, list) else [value]
    return any(item in allowed for item in values)
