"""The interval of a range coder in numbers: of its state, and of the shares of symbols; see ``range_coder``."""

TOTAL_BITS = 32
TOTAL = 1 << TOTAL_BITS  # the shares of all symbols that may come next
WIDTH_BITS = 62
LEAST_WIDTH = 1 << (WIDTH_BITS - 8)
LOW, WIDTH, AT = 0, 1, 2  # of a coder's state, (3,) int64; of a decoder LOW is what is read less low
ROOM = 8  # bytes that one symbol may add, and the last ones
