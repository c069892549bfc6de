"""Reads a manifest's YAML without reading anything differently from Argo.

Go's reader (sigs.k8s.io/yaml) follows YAML 1.1: a plain `010` is 8, `yes` is true, `1_000` is 1000, and
an integer beyond 2^53 loses its last digits on the way through JSON. Such a scalar looks like a text or
like another number, so it is refused instead of being read in either way.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from config.strict_yaml import StrictLoader

LARGEST_EXACT = 2**53
"""JSON's numbers are floats in Go: integers up to here are exact."""
WORD = re.compile(r"y|yes|n|no|on|off|true|false|null", re.IGNORECASE)
NUMBER = re.compile(
    r"[-+]?(?:0[xX][0-9a-fA-F_]+|0[oO]?[0-7_]+|0[bB][01_]+|\.(?:inf|Inf|INF)"
    r"|(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?)|\.(?:nan|NaN|NAN)"
)


class GoLoader(StrictLoader):
    """A `StrictLoader` that refuses values of which Go's reader would make something else."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse a plain scalar that two readers take for different values. Keys are texts for both."""
        node = super().compose_node(parent, index)
        is_key = isinstance(parent, yaml.MappingNode) and index is None
        if isinstance(node, yaml.ScalarNode) and node.style is None and not is_key:
            text = node.value
            is_text = node.tag == "tag:yaml.org,2002:str"
            is_other = bool(WORD.fullmatch(text) or NUMBER.fullmatch(text))
            is_rounded = node.tag.endswith(":int") and abs(int(text)) > LARGEST_EXACT
            if (is_text and is_other) or is_rounded:
                raise yaml.MarkedYAMLError(
                    problem=f"Argo reads {text} as another value than it looks like: quote it",
                    problem_mark=node.start_mark,
                )
        return node
