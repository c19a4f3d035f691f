// Thread blocks of a cluster, which run at the same time and read one another's shared memory.
#pragma once

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define BATCHKRON_CLUSTER(blocks)
#else
#define BATCHKRON_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)
#endif

namespace batchkron {

// Orders all memory accesses of the cluster's threads before and after it.
__device__ inline void sync_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// What block `rank` of the cluster has where this one has `shared`.
template <class T>
__device__ const T* of_block(const T* shared, int rank) {
  unsigned long long address = reinterpret_cast<unsigned long long>(shared);
#if __CUDA_ARCH__ >= 900
  asm("mapa.u64 %0, %0, %1;" : "+l"(address) : "r"(rank));
#endif
  return reinterpret_cast<const T*>(address);
}

}  // namespace batchkron
