"""The published JSON Schema."""

import json
from collections.abc import Iterator

from nodeguard.config.schema import json_schema
from nodeguard.model.signals import SIGNALS


def walk(value: object) -> Iterator[dict[str, object]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


def test_every_reference_leads_somewhere() -> None:
    """It is one self-contained document."""
    schema = json_schema()
    references = {str(part["$ref"]) for part in walk(schema) if "$ref" in part}
    assert references
    assert all(reference.removeprefix("#/$defs/") in schema["$defs"] for reference in references)
    json.dumps(schema, allow_nan=False)


def test_both_kinds_of_file_are_covered() -> None:
    """Rules as items, overrides by name and in a list, each with every field of a rule."""
    defs = json_schema()["$defs"]
    fields = set(defs["RuleModel"]["properties"])
    assert defs["RuleSetFile"]["properties"]["rules"]["items"] == {"$ref": "#/$defs/RuleModel"}
    assert set(defs["Override"]["properties"]) == fields - {"name"}
    assert set(defs["OverrideHead"]["properties"]) == fields - {"name"} | {"rule", "nodes"}
    assert {"is", "for", "above", "left", "absent", "mode"} < fields


def test_editors_get_words_and_descriptions() -> None:
    """Every field of a rule is described, and words such as signals are enumerated."""
    defs = json_schema()["$defs"]
    properties = [defs[name]["properties"] for name in ("RuleModel", "ClearModel", "CountModel", "OverrideHead")]
    assert all(one.get("description") for each in properties for one in each.values())
    assert defs["RuleModel"]["properties"]["signal"]["enum"] == list(SIGNALS)
    assert "evict" in defs["RuleModel"]["properties"]["effect"]["enum"]
