"""``python -m prnn`` is ``prnn``."""

import sys

from prnn.cli import main

sys.exit(main())
