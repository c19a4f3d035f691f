"""What limits a cell, by Nsight Compute."""
