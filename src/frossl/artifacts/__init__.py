"""What a run leaves for others: encoder files."""

from frossl.artifacts.encoder import load_encoder, save_encoder

__all__ = ["load_encoder", "save_encoder"]
