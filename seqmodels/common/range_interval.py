"""Constants of the range coder: widths of its interval and places in its state; see ``range_coder``."""

TOTAL_BITS = 32
TOTAL = 1 << TOTAL_BITS  # the sum of the shares of all symbols that may come next
WIDTH_BITS = 62
LEAST_WIDTH = 1 << (WIDTH_BITS - 8)
# Places in a coder's state, (3,) int64; a decoder keeps at LOW the number it has read minus the interval's low end.
LOW, WIDTH, AT = 0, 1, 2
ROOM = 8  # the most bytes that one symbol adds, and that the end of the code adds
