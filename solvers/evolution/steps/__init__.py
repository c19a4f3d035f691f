"""Steps of a run: their lengths, the states that they try, and the solution inside them."""
