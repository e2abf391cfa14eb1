from __future__ import annotations

import json
import subprocess
import sys

import pytest
from process import HERE

TOUCH = """
import json
from peers.memory import Peak
big = bytearray(b'x') * (120 << 20)
del big
peak = Peak()
more = bytearray(b'x') * (40 << 20)
del more
print(json.dumps([peak.mb(), peak.extra_mb()]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process cannot lower its mark")
def test_extra_is_only_what_came_after() -> None:
    done = subprocess.run([sys.executable, "-c", TOUCH], cwd=HERE, stdout=subprocess.PIPE, check=True)
    most, extra = json.loads(done.stdout)
    assert most > 120
    assert 39 < extra < 60
