// Overlapping launches: what a kernel calls that may begin while the previous one of its stream drains.
#pragma once

// Waits until everything that the previous kernel wrote is visible. Nothing where the launch was an ordinary one.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel begin.
__device__ __forceinline__ void release_next() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
