"""``python -m traceanalyzer``."""

import sys

from traceanalyzer.cli import main

if __name__ == "__main__":
    sys.exit(main())
