"""Damages files of all formats in many ways and watches what their loaders do."""
