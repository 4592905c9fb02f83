// What this plugin has to know of libc10.so, declared by hand: the objects that torch's CPU allocator hands
// out, its virtual functions, and where it is set. Equal in torch 2.2 to 2.14; `find_c10` refuses a library
// whose table of virtual functions is another one. Taken from c10/core/Allocator.h of torch 2.13.
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
  // Not null: allocate() returns pointers with this deleter and no other context.
  [[nodiscard]] virtual Deleter raw_deleter() const = 0;
  virtual void copy_data(void* to, const void* from, size_t bytes) const = 0;
};

struct C10 {
  Allocator* (*get)() = nullptr;
  void (*set)(Allocator* allocator, uint8_t priority) = nullptr;
  int (*graph_task)() = nullptr;  // of the backward pass this thread is in; negative: none
};

// Looks everything up in libraries that are loaded already. Returns the reason where torch cannot be served.
std::string find_c10(const char* libc10, const char* libtorch_cpu, C10& c10);

}  // namespace rueda::torch
