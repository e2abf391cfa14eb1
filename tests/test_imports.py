"""``import seqmodels`` loads torch and numpy alone; other packages are loaded by the functions that need them."""

import subprocess
import sys

LATER = ("matplotlib", "pandas", "pyro", "safetensors", "scipy", "sklearn", "tokenizers", "transformers", "typer")


def test_other_packages_are_loaded_where_they_are_needed() -> None:
    code = f"import sys, seqmodels; print(*[name for name in {LATER} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == []
