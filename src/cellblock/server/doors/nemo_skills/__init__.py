"""The protocol of NeMo-Skills' local sandbox."""
