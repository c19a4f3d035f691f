// Prints the best instruction set of this machine; run while the build is configured.
#include <cstdio>

#include "engine/processor.hpp"

int main() { std::printf("%s", batchkron::best_instruction_set()); }
