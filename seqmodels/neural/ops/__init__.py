"""Tensor operations with forward and backward passes of our own, where autograd's take longer or hold more memory."""
