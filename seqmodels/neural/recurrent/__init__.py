"""Recurrent networks: Elman, LSTM, GRU."""
