"""A stateless, OpenAI-compatible server around the engine, and a proxy that adds cache ops."""
