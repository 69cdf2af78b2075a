"""Language models as proposers and critics: any OpenAI-compatible endpoint."""
