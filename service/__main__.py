"""`python -m service` is the `firn` command."""

import sys

from service.cli import main

sys.exit(main())
