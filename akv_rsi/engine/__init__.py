"""The embedded engine: paged KV, views, the radix tree, and exact cache operations."""
