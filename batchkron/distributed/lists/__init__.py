"""Batch lists whose output blocks are dealt out to ranks."""
