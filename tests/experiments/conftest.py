import sys
from pathlib import Path

sys.path.append(
    str(Path(__file__).parents[2] / "experiments" / "claims")
)  # scripts, which import one another by plain names
