"""How much attention each page receives."""
