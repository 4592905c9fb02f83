"""Parts of the launcher that cluster integrations import."""
