// What this plugin has to know of libc10.so, declared by hand: the objects that torch's CPU allocator
// returns, its virtual functions, and the functions that set it. This is equal in torch 2.2 to 2.14;
// `find_c10` refuses a library with another table of virtual functions. Taken from c10/core/Allocator.h
// of torch 2.13.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace rueda::torch {

using Deleter = void (*)(void*);

struct DataPtr {
  void* data = nullptr;
  std::unique_ptr<void, Deleter> context{nullptr, nullptr};
  int8_t device_type = 0;
  int8_t device_index = -1;
};
static_assert(sizeof(DataPtr) == 32);

class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual DataPtr allocate(size_t bytes) = 0;
  [[nodiscard]] virtual bool is_simple_data_ptr(const DataPtr& pointer) const = 0;
  // If it is not null, allocate() returns pointers with this deleter and no other context.
  [[nodiscard]] virtual Deleter raw_deleter() const = 0;
  virtual void copy_data(void* to, const void* from, size_t bytes) const = 0;
};

struct C10 {
  Allocator* (*get)() = nullptr;
  void (*set)(Allocator* allocator, uint8_t priority) = nullptr;
  int (*graph_task)() = nullptr;  // number of the backward pass in which this thread is; negative: none
};

// Looks everything up in libraries that are loaded already. Returns why torch cannot be served, or
// an empty text.
std::string find_c10(const char* libc10, const char* libtorch_cpu, C10& c10);

}  // namespace rueda::torch
