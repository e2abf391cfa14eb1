"""The HTML report of a comparison: one self-contained page that opens without a network and fetches nothing."""
