// Clusters: thread blocks that run at the same time and can read one another's shared memory, from
// compute capability 9.0 on. On older devices a "cluster" is one thread block.
#pragma once

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define BATCHKRON_CLUSTER(blocks)
#else
#define BATCHKRON_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)
#endif

namespace batchkron {

// A barrier of all threads of the cluster; what they wrote before it is seen by all behind it.
__device__ inline void sync_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// The address in the shared memory of thread block `rank` of the cluster that corresponds to
// `shared` in this one's.
template <class T>
__device__ const T* of_block(const T* shared, int rank) {
  unsigned long long address = reinterpret_cast<unsigned long long>(shared);
#if __CUDA_ARCH__ >= 900
  asm("mapa.u64 %0, %0, %1;" : "+l"(address) : "r"(rank));
#endif
  return reinterpret_cast<const T*>(address);
}

}  // namespace batchkron
