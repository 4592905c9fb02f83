"""Keys and digests of messages."""

from __future__ import annotations

import hashlib
import hmac
import secrets

HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"
DIGEST_LENGTH = hashlib.sha256().digest_size  # bytes


def make_secret_key() -> bytes:
    """32 random bytes."""
    return secrets.token_bytes(32)


def compute_digest(key: bytes, body: bytes) -> bytes:
    """HMAC-SHA-256."""
    return hmac.new(key, body, hashlib.sha256).digest()


def check_digest(key: bytes, body: bytes, digest: bytes) -> bool:
    """Whether the digest is that of the body; takes the same time for all wrong ones."""
    return hmac.compare_digest(compute_digest(key, body), digest)
