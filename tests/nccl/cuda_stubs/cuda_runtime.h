// What NVIDIA's nccl.h takes from CUDA's headers, so that a test can compare it with our declarations.
#pragma once
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
