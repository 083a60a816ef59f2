"""pandas tables of single gaps, kernels and copies, which only the recording can give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from traceanalyzer.model.schema import CopyDirection, MemoryKind
from traceanalyzer.results.vocabulary import CAUSES, PHASES

if TYPE_CHECKING:
    import pandas as pd

    from traceanalyzer.measures import Measures


@dataclass(frozen=True, slots=True)
class MeasuredFrames:
    """Tables of the recordings behind one Analysis.

    Attributes:
        ranks: Each rank's measures, in rank order.
    """

    ranks: tuple[Measures, ...]

    def gaps(self) -> pd.DataFrame:
        """One row per idle piece of every rank, in time order per device.

        Columns: ``rank``, ``device_id``, ``start_ns``, ``end_ns``, ``duration_ns``, ``cause``, ``phase``, ``step``
        (-1 outside every window), ``gap`` (pieces of one device gap share it; -1 outside the device's span),
        ``in_span``, ``boundary``. Pieces with ``in_span`` sum to the device's idle time exactly.
        """
        import pandas as pd

        tables = []
        for measures in self.ranks:
            idle = measures.idle
            tables.append(
                pd.DataFrame(
                    {
                        "rank": np.full(len(idle.start_ns), measures.rank, dtype=np.int64),
                        "device_id": idle.device,
                        "start_ns": idle.start_ns,
                        "end_ns": idle.end_ns,
                        "duration_ns": idle.duration_ns,
                        "cause": pd.Categorical.from_codes(idle.cause, categories=pd.Index([c.value for c in CAUSES])),
                        "phase": pd.Categorical.from_codes(idle.phase, categories=pd.Index([p.value for p in PHASES])),
                        "step": idle.window,
                        "gap": idle.gap,
                        "in_span": idle.in_span.astype(bool),
                        "boundary": idle.boundary.astype(bool),
                    }
                )
            )
        return pd.concat(tables, ignore_index=True)

    def kernels(self) -> pd.DataFrame:
        """One row per kernel of every rank, in time order.

        Columns: ``rank``, ``device_id``, ``stream``, ``name``, ``family``, ``start_ns``, ``duration_ns``, ``step``
        (the window that launched it; -1 none).
        """
        import pandas as pd

        tables = []
        for measures in self.ranks:
            kernels = measures.kernels
            activities = measures.trace.activities.take(kernels.activity)
            tables.append(
                pd.DataFrame(
                    {
                        "rank": np.full(len(kernels.activity), measures.rank, dtype=np.int64),
                        "device_id": kernels.device,
                        "stream": activities.stream,
                        "name": [measures.name(int(code)) for code in activities.name],
                        "family": [kernels.families[int(code)] for code in kernels.family],
                        "start_ns": activities.start_ns,
                        "duration_ns": kernels.duration_ns,
                        "step": kernels.window,
                    }
                )
            )
        return pd.concat(tables, ignore_index=True)

    def copies(self) -> pd.DataFrame:
        """One row per copy of every rank, in time order.

        Columns: ``rank``, ``device_id``, ``stream``, ``direction`` (h2d, d2h, d2d, p2p …), ``host_memory`` (pageable,
        pinned …), ``start_ns``, ``duration_ns``, ``bytes`` (-1 unknown), ``overlapped_ns`` (under a kernel of the same
        device), ``host_blocked_ns``, ``step`` (the window that issued it; -1 none).
        """
        import pandas as pd

        tables = []
        for measures in self.ranks:
            copies = measures.copies
            tables.append(
                pd.DataFrame(
                    {
                        "rank": np.full(len(copies.activity), measures.rank, dtype=np.int64),
                        "device_id": copies.device,
                        "stream": measures.trace.activities.take(copies.activity).stream,
                        "direction": [CopyDirection(code).name.lower() for code in copies.direction.tolist()],
                        "host_memory": [MemoryKind(code).name.lower() for code in copies.host_memory.tolist()],
                        "start_ns": copies.start_ns,
                        "duration_ns": copies.end_ns - copies.start_ns,
                        "bytes": copies.size_bytes,
                        "overlapped_ns": copies.overlapped_ns,
                        "host_blocked_ns": copies.host_blocked_ns,
                        "step": copies.window,
                    }
                )
            )
        return pd.concat(tables, ignore_index=True)
