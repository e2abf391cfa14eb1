"""Transformers: attention, what surrounds it, and the models of decoder only and of encoder and decoder."""
