// One table of loops per instruction set, and the choice among them. Internal to the module and its tests;
// other modules use kernels.h. The loops work on element types as they are in memory. They do not know
// ReduceOp::kAverage, bool or the scaling of integers: kernels.cc expresses those with the loops here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace rueda::kernels {

// y = x / divisor * factor in the accumulator type. Null stands for "no scaling".
struct FloatScale {
  double divisor = 1;
  double factor = 1;
};

enum class Op : uint8_t { kSum, kMin, kMax, kProduct };
inline constexpr int kOpCount = 4;

enum class Half : uint8_t { kFloat16, kBfloat16 };
enum class Real : uint8_t { kFloat32, kFloat64 };
enum class Integer : uint8_t { kUint8, kInt8, kUint16, kInt16, kInt32, kInt64 };

// Sums of products of two vectors, for Adasum. Each has eight partial sums; element i goes into partial sum i
// mod 8, so that the order of additions does not depend on the width of a register.
struct Dots {
  double ab[8] = {};
  double aa[8] = {};
  double bb[8] = {};
};

using ReduceFn = void (*)(const void* const* sources, size_t source_count, void* out, size_t count,
                          const FloatScale* scale);
using AccumulateFn = void (*)(const float* acc_in, const uint16_t* in, float* acc_out, size_t count);
using WidenFn = void (*)(const uint16_t* in, float* acc, size_t count);
using NarrowFn = void (*)(const float* acc, uint16_t* out, size_t count, const FloatScale* scale);
// Every call except the last one of a vector has a count that is a multiple of 8.
using DotFn = void (*)(const void* a, const void* b, size_t count, Dots& dots);
using CombineFn = void (*)(double a_factor, const void* a, double b_factor, const void* b, void* out,
                           size_t count);

// Blocks of kWireBlock elements; see encode() and decode() in kernels.h.
using EncodeFn = void (*)(const float* in, const float* error_in, float* error_out, std::byte* out,
                          size_t blocks);
using DecodeFn = void (*)(const std::byte* in, const float* acc_in, float* out, size_t count);

struct Table {
  const char* name = nullptr;  // "AVX2"
  ReduceFn reduce_half[2][kOpCount] = {};
  ReduceFn reduce_real[2][kOpCount] = {};
  ReduceFn reduce_integer[6][kOpCount] = {};
  AccumulateFn accumulate[2][kOpCount] = {};
  WidenFn widen[2] = {};
  NarrowFn narrow[2] = {};
  DotFn dot[2] = {};
  CombineFn combine[2] = {};
  EncodeFn encode_half[2] = {};
  DecodeFn decode_half[2] = {};
  EncodeFn encode_int8 = nullptr;
  DecodeFn decode_int8 = nullptr;
};

// The compiled tables that this CPU and its operating system support, best first. Never empty.
std::span<const Table> usable_tables();

// The table in use: the best one, unless select_target() chose another.
const Table& table();

// For tests and benchmarks: selects a target by name ("" = the best one). Returns false if this CPU cannot
// run it or it is not compiled in.
bool select_target(std::string_view name);

}  // namespace rueda::kernels
