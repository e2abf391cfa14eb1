"""Tensor operations with their own backward passes, where autograd's take longer or hold more memory."""
