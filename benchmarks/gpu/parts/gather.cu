// The rate of random gathers: how long blocks of a large array take to reach the multiprocessors.

// Each warp reads `count` blocks of `words` words at ids[i] * words, all of them with four reads of
// a lane on their way, and writes only if a sum of bits is a number that it hardly can be.
template <class Word>
__global__ void gather(const Word* x, const int* ids, unsigned* out, long long count, int words) {
  const long long warp = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / 32;
  const long long warps = gridDim.x * (long long)blockDim.x / 32;
  const int lane = threadIdx.x % 32;
  unsigned sum = 0;
  for (long long i = warp * 4; i < count; i += warps * 4) {
    const Word* blocks[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) blocks[k] = x + ids[i + k < count ? i + k : i] * (long long)words;
    for (int w = lane; w < words; w += 32) {
      Word read[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) read[k] = blocks[k][w];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const unsigned* const bits = reinterpret_cast<const unsigned*>(&read[k]);
#pragma unroll
        for (int b = 0; b < int(sizeof(Word) / 4); ++b) sum += bits[b];
      }
    }
  }
  if (sum == 0x9e3779b9u) *out = sum;
}
