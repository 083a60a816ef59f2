"""The part of SARIF 2.1.0 that the tool writes, as a JSON schema.

Written by hand from the standard (OASIS, "Static Analysis Results Interchange Format", version 2.1.0): which properties
an object of each kind may have, which it must have, and their types. Closed, so that a misspelt property is found.
"""

from __future__ import annotations

from typing import Any

LEVEL = {"enum": ["none", "note", "warning", "error"]}
TEXT = {"type": "string"}
BAG = {"type": "object", "properties": {"tags": {"type": "array", "items": TEXT, "uniqueItems": True}}}


def thing(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required,
        "properties": {**properties, "properties": BAG},
    }


def things(item: dict[str, Any], **limits: Any) -> dict[str, Any]:
    return {"type": "array", "items": item, **limits}


INDEX = {"type": "integer", "minimum": -1}
MESSAGE = {
    **thing([], text=TEXT, markdown=TEXT, id=TEXT, arguments=things(TEXT)),
    "anyOf": [{"required": ["text"]}, {"required": ["id"]}],
}
MULTIFORMAT = thing(["text"], text=TEXT, markdown=TEXT)
ARTIFACT_LOCATION = thing(
    [], uri={"type": "string", "format": "uri-reference"}, uriBaseId=TEXT, index=INDEX, description=MESSAGE
)
REGION = thing(
    [],
    **{name: {"type": "integer", "minimum": 1} for name in ("startLine", "startColumn", "endLine", "endColumn")},
)
PHYSICAL = {
    **thing([], artifactLocation=ARTIFACT_LOCATION, region=REGION, contextRegion=REGION),
    "anyOf": [{"required": ["artifactLocation"]}, {"required": ["address"]}],
}
LOGICAL = thing([], name=TEXT, fullyQualifiedName=TEXT, kind=TEXT, index=INDEX)
LOCATION = thing(
    [], id=INDEX, physicalLocation=PHYSICAL, logicalLocations=things(LOGICAL, uniqueItems=True), message=MESSAGE
)
REFERENCE = {
    **thing([], id=TEXT, index=INDEX, guid=TEXT),
    "anyOf": [{"required": ["index"]}, {"required": ["guid"]}, {"required": ["id"]}],
}
RULE = thing(
    ["id"],
    id=TEXT,
    name=TEXT,
    shortDescription=MULTIFORMAT,
    fullDescription=MULTIFORMAT,
    help=MULTIFORMAT,
    helpUri={"type": "string", "format": "uri"},
    defaultConfiguration=thing([], level=LEVEL, enabled={"type": "boolean"}),
)
NOTIFICATION = thing(
    ["message"],
    message=MESSAGE,
    level=LEVEL,
    descriptor=REFERENCE,
    associatedRule=REFERENCE,
    locations=things(LOCATION),
)
RESULT = thing(
    ["message"],
    ruleId=TEXT,
    ruleIndex=INDEX,
    level=LEVEL,
    message=MESSAGE,
    locations=things(LOCATION),
    relatedLocations=things(LOCATION, uniqueItems=True),
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
)
DRIVER = thing(
    ["name"],
    name=TEXT,
    version=TEXT,
    informationUri={"type": "string", "format": "uri"},
    rules=things(RULE, uniqueItems=True),
)
INVOCATION = thing(
    ["executionSuccessful"],
    executionSuccessful={"type": "boolean"},
    toolExecutionNotifications=things(NOTIFICATION),
)
RUN = thing(
    ["tool"],
    tool=thing(["driver"], driver=DRIVER),
    language={"type": "string", "pattern": "^[a-zA-Z]{2}(-[a-zA-Z]{2})?$"},
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    originalUriBaseIds={"type": "object", "additionalProperties": ARTIFACT_LOCATION},
    invocations=things(INVOCATION),
    results=things(RESULT),
)
LOG = {
    **thing(["version", "runs"], version={"const": "2.1.0"}, runs=things(RUN)),
}
LOG["properties"]["$schema"] = {"type": "string", "format": "uri"}
SCHEMA = {"$schema": "https://json-schema.org/draft/2020-12/schema", **LOG}
