"""YAML as this project writes it: keys in their order, shell as a block, the release of a pinned action beside its commit."""

from __future__ import annotations

import io
from collections.abc import Mapping

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.scalarstring import LiteralScalarString

HEAD = "# Written by `python -m ci.matrix` from ci/lanes.toml: change that file or ci/*.py, not this one."


def yaml_text(content: Mapping[str, object], *, comment: str, releases: Mapping[str, str] | None = None) -> str:
    """The text of a file: who wrote it, the comment, then `content`. A value that is a key of `releases` gets that text as a comment."""
    yaml = YAML()
    yaml.width = 140
    yaml.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    yaml.dump(_node(content, releases or {}), out)
    lines = [HEAD, *(f"# {line}" for line in comment.splitlines())]
    return "\n".join(lines) + "\n" + out.getvalue()


def _node(value: object, releases: Mapping[str, str]) -> object:
    if isinstance(value, Mapping):
        node = CommentedMap((key, _node(item, releases)) for key, item in value.items())
        for key, item in value.items():
            if isinstance(item, str) and item in releases:
                node.yaml_add_eol_comment(releases[item], key, column=0)
        return node
    if isinstance(value, list):
        return [_node(item, releases) for item in value]
    return LiteralScalarString(value) if isinstance(value, str) and "\n" in value else value
