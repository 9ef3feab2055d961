"""Every byte that crosses the boundary between host and device: the ABI's single source."""
