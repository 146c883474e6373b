"""The JSON Schema of policy documents, for editors that complete and check while one types.

``python -m policies.schema > docs/reference/policy.schema.json``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from policies.document import PolicyDocument


def schema() -> dict[str, Any]:
    """What a document may hold, in JSON Schema 2020-12."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hybrid policy",
        **PolicyDocument.model_json_schema(mode="validation"),
    }


def schema_text() -> str:
    """The schema as it is published."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
