"""Recurrent networks: Elman, LSTM, GRU, and networks of any cell."""
