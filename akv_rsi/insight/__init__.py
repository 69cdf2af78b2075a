"""What the events of a run say, for people: read only, without torch, the engine or a screen."""
