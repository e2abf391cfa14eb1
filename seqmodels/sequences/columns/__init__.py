"""How a column of a table is read: as times, as numbers, and as what says which series a row is of."""
