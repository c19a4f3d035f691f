"""What is found before a PDE is discretized: contradictions, outflow, lack of memory."""
