"""What a run says: verdicts, tables, standings, pictures."""
