"""Networks for targets as long as their sources: taggers, framewise labels, framewise regression."""
