"""akv-rsi: finds the KV-cache policy that makes agents cheaper without making them worse."""
