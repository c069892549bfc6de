"""Argo's own schema of a workflow, made strict: a field that it does not know is an error."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

SCHEMA = Path(__file__).parent / "argo-4.1.2-workflow.schema.json"


def strict_schema() -> jsonschema.Draft202012Validator:
    """The validator of a workflow."""
    schema = json.loads(SCHEMA.read_text())
    for name, definition in schema["definitions"].items():
        if name.endswith(".IntOrString"):
            definition["type"] = ["string", "integer"]
        elif name.endswith(".Quantity"):
            definition["type"] = ["string", "number"]
        elif "properties" in definition:
            definition["additionalProperties"] = False
    return jsonschema.Draft202012Validator(schema)
