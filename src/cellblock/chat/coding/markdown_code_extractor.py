"""MarkdownCodeExtractor: the code blocks of a message, as CommonMark defines them."""

from ...blocks import MarkdownCodeExtractor

__all__ = ["MarkdownCodeExtractor"]
