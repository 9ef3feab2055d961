"""Rings, doorbells, the control channel and the links that carry them."""  # noqa: A005
