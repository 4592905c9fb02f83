// What NVIDIA's nccl.h takes from CUDA's headers, so that a test can compare it with our declarations.
#pragma once
typedef struct CUstream_st* cudaStream_t;
