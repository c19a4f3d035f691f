"""What is observed while a run goes on: samples, events, conserved quantities, progress."""
