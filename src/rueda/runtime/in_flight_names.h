// The names that are in flight, each in its process set, and the operations by their handles. A look-up
// copies no name, and an entry that is taken out can be put in again, so that what recurs allocates nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "rueda/runtime/operation.h"

namespace rueda::runtime {

// What a name stands for while it is in flight: a tensor on which the engine thread works, or a change of the
// process sets, which has no tensor.
struct TensorRef {
  std::shared_ptr<Operation> operation;
  size_t index = 0;
  [[nodiscard]] bool has_tensor() const { return index < operation->tensors.size(); }
  [[nodiscard]] Tensor& tensor() const { return operation->tensors[index]; }
};

struct NameView {
  int32_t process_set = 0;
  std::string_view name;
  size_t hash = hash_of(process_set, name);

  static size_t hash_of(int32_t process_set, std::string_view name) {
    return std::hash<std::string_view>()(name) ^ (static_cast<size_t>(process_set) * 0x9E3779B97F4A7C15u);
  }
};

struct NameKey {
  explicit NameKey(const NameView& view) : process_set(view.process_set), name(view.name), hash(view.hash) {}
  int32_t process_set;
  std::string name;
  size_t hash;

  [[nodiscard]] bool is(const NameView& view) const {
    return process_set == view.process_set && name == view.name;
  }
};

struct NameHash {
  using is_transparent = void;
  size_t operator()(const NameKey& key) const { return key.hash; }
  size_t operator()(const NameView& view) const { return view.hash; }
};
struct NameEqual {
  using is_transparent = void;
  bool operator()(const NameKey& a, const NameKey& b) const {
    return a.process_set == b.process_set && a.name == b.name;
  }
  bool operator()(const NameView& a, const NameKey& b) const { return b.is(a); }
  bool operator()(const NameKey& a, const NameView& b) const { return a.is(b); }
};

using InFlightNames = std::unordered_map<NameKey, TensorRef, NameHash, NameEqual>;
using OperationsByHandle = std::unordered_map<int64_t, std::shared_ptr<Operation>>;

}  // namespace rueda::runtime
