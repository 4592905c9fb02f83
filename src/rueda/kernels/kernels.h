// Arithmetic on spans of elements. Every function uses the best instruction set of this CPU, chosen at run
// time (Highway), and gives the same bits with each of them. The functions know neither ranks nor networks.
// Any thread; no allocation.
//
// "acc" spans hold accumulator_of(dtype): float32 for float16 and bfloat16, otherwise dtype itself. The
// output may be one of the inputs (in place), but must not overlap an input in part. op is kSum, kMin, kMax
// or kProduct; kAverage is kSum with a Scale. Integers wrap around. Min and Max propagate NaN from either
// operand. Bool: kSum and kMax are OR, kProduct and kMin are AND.
#pragma once

#include <cstddef>
#include <span>

#include "rueda/base/types.h"

namespace rueda::kernels {

// out[i] = a[i] op b[i], all of type dtype. 16-bit floats are computed in float32 and rounded once.
void reduce(ReduceOp op, DType dtype, const void* a, const void* b, void* out, size_t count);

// acc_out[i] = acc_in[i] op widen(in[i]).
void accumulate(ReduceOp op, DType dtype, const void* acc_in, const void* in, void* acc_out, size_t count);

// acc[i] = widen(in[i]).
void widen(DType dtype, const void* in, void* acc, size_t count);

// out[i] = round(scale(acc[i])): the last step of a reduction (types.h, Scale).
void finish(DType dtype, const void* acc, void* out, size_t count, const Scale& scale);

// out[i] = scale(in[i]), both of type dtype: prescaling. 16-bit floats are multiplied in float32
// and rounded once.
void scale(DType dtype, const void* in, void* out, size_t count, const Scale& factor);

// out[i] = round(scale(sources[0][i] op sources[1][i] op …)), in that order, in the accumulator type.
// One pass over memory for any number of sources ≥ 1.
void reduce_sources(ReduceOp op, DType dtype, std::span<const void* const> sources, void* out, size_t count,
                    const Scale& scale);

// Encodes whole blocks for the wire: v = in + error_in, the bytes of v to out, and v - decode(out) to
// error_out. error_in null: no error. error_out null: not wanted; it may be in or error_in. A block with a
// value that the type does not hold as a finite number becomes NaN as a whole, and its error 0. An int8 is
// v / scale, rounded to nearest even, with the scale that makes the largest of its block 127; a block in
// which all are below 1e-30 becomes 0.
void encode(Wire wire, const float* in, const float* error_in, float* error_out, std::byte* out,
            size_t blocks);
// out[i] = decoded (+ acc_in[i], unless acc_in is null). count need not end with a block. out may be acc_in.
void decode(Wire wire, const std::byte* in, const float* acc_in, float* out, size_t count);

// Adasum of two vectors (float16, bfloat16, float32, float64); dot products in float64, coefficients 1
// below sqrt(DBL_MIN). out may be a or b. The bits are the same on whichever rank computes it. Source:
// Maleki et al., 2020.
void adasum(DType dtype, const void* a, const void* b, void* out, size_t count);

// The identity element of op (0 for Average and Sum, 1 for Product, the extremes for Min and Max).
void fill_identity(ReduceOp op, DType dtype, void* out, size_t count);

const char* active_target();  // "AVX3", "AVX2", …: for doctor and logs

}  // namespace rueda::kernels
