"""The one way data gets into a script block, whatever the names in it look like."""

from __future__ import annotations

from typing import Any

import msgspec


def script_json(value: Any) -> str:
    """Encode a value as JSON that cannot leave a ``<script type="application/json">`` block.

    Inside such a block the HTML parser looks for ``</script`` and ``<!--`` only, so no ``<`` may remain; U+2028 and
    U+2029 end lines in older JavaScript. All three occur in JSON only inside strings, where an escape means the same.

    Args:
        value: Anything msgspec can encode.
    """
    text = msgspec.json.encode(value).decode("utf-8")
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
