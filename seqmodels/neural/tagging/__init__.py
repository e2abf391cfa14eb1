"""Networks whose targets are as long as their sources: taggers, framewise labels, framewise regression."""
