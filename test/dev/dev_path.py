"""Makes the scripts of dev/ importable for their tests."""

import pathlib
import sys

DEV = pathlib.Path(__file__).resolve().parents[2] / "dev"
sys.path.insert(0, str(DEV))
