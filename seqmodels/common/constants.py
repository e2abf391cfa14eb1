"""Mathematical constants that Python's ``math`` lacks."""

import math

LOG_2PI = math.log(2 * math.pi)
