"""Interned names, and the string table of an export that ids point into."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traceanalyzer.model.schema import CodeArray, IntArray
from traceanalyzer.readers.nsys_tables import RawTable

# Below this id a lookup table over all ids is smaller than the columns it serves; above it ids are searched.
_DENSE_IDS = 8_000_000


class Names:
    """Collects the distinct names of a recording; a name's code is its position."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, name: str) -> int:
        """Return the code of a name, adding it when new."""
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = len(self.values)
            self.values.append(name)
        return code

    def translate(self, codes: IntArray, texts: list[str], missing: int = -1) -> CodeArray:
        """Turn codes into ``texts`` (-1 missing) into codes of this collection."""
        table = np.fromiter((self.code(text) for text in texts), dtype=np.int32, count=len(texts))
        table = np.append(table, np.int32(missing))
        return table[codes]


class StringTable:
    """``StringIds``: id → text.

    Args:
        raw: The table, or None where the export has none.
    """

    def __init__(self, raw: RawTable | None) -> None:
        if raw is None or not len(raw):
            self._ids: IntArray = np.zeros(0, dtype=np.int64)
            self._values: list[str] = []
            return
        codes, distinct = raw.texts("value")
        ids = raw.integers("id")
        order = np.argsort(ids, kind="stable")
        self._ids = ids[order]
        self._values = [distinct[code] if code >= 0 else "" for code in codes[order].tolist()]

    def text(self, identifier: int) -> str | None:
        """Text of one id, or None when the table has no such id."""
        position = int(np.searchsorted(self._ids, identifier))
        if position < len(self._ids) and int(self._ids[position]) == identifier:
            return self._values[position]
        return None

    def codes(
        self, ids: IntArray, names: Names, transform: Callable[[str], str] | None = None
    ) -> tuple[CodeArray, int, int]:
        """Turn a column of ids into name codes.

        Args:
            ids: String ids; -1 where the row has none.
            names: Collection the codes point into.
            transform: Applied to each text (for example to cut a version suffix).

        Returns:
            Codes (-1 where the row has no id), the number of rows whose id the table lacks, and one such id. Those
            rows are named ``<unknown string ID>``.
        """
        if not len(ids):
            return np.zeros(0, dtype=np.int32), 0, -1
        highest = int(ids.max())
        dense = int(ids.min()) >= -1 and highest < _DENSE_IDS
        if dense:
            used = np.zeros(highest + 2, dtype=np.bool_)
            used[ids] = True  # id -1 marks the last place
            distinct = np.flatnonzero(used[:-1])
        else:
            distinct = np.unique(ids[ids != -1])
        made = np.full(len(distinct), -1, dtype=np.int32)
        unknown: list[int] = []
        for row, identifier in enumerate(distinct.tolist()):
            text = self.text(identifier)
            if text is None:
                unknown.append(identifier)
                text = f"<unknown string {identifier}>"
            elif transform is not None:
                text = transform(text)
            made[row] = names.code(text)
        if dense:
            table = np.full(highest + 2, -1, dtype=np.int32)
            table[distinct] = made
            result = table[ids]
        else:
            place = np.clip(np.searchsorted(distinct, ids), 0, max(len(distinct) - 1, 0))
            result = np.where(ids == -1, np.int32(-1), made[place] if len(made) else np.int32(-1)).astype(np.int32)
        count = int(np.isin(ids, np.asarray(unknown, dtype=np.int64)).sum()) if unknown else 0
        return result, count, unknown[0] if unknown else -1
