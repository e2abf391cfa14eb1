"""Behaviour when something fails: each script measures some promises and prints a row for each (``make faults``)."""
