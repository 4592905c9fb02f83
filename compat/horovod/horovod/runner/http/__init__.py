"""The rendezvous of ranks that an integration starts itself."""
