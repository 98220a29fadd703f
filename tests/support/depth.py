"""How much the tests do: what shows every behaviour, or (``EPOCHAL_DEEP=1``, ``make deep``) more of it."""

import os

DEEP = bool(os.environ.get("EPOCHAL_DEEP"))
