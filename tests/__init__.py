"""The tests of all packages.

This module is imported before whatever a conftest imports.
"""

import os
import sys

# The tests start hundreds of processes, which would compile each module again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
