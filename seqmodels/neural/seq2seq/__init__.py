"""Recurrent encoder-decoders and their attention."""
