"""Parts that read the world and return Batches. They never judge."""
