"""Transformers: attention, the layers around it, decoder-only models, and models of an encoder and a decoder."""
