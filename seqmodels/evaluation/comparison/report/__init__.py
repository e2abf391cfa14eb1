"""The HTML report of a comparison: one self-contained page, which opens without a network and fetches nothing."""
