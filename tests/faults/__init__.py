"""Promises that hold when things go wrong: each script here measures some and prints a row for each (``make faults``)."""
