# The cffi extension that `build_driver.py` describes; its names come from the C headers.
from typing import Any

ffi: Any
lib: Any
