"""What a run starts with, checked: problem, method, initial state or checkpoint, times of steps."""
