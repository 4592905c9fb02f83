// Operations that recur: what is known of each before it starts, and what its last run leaves for the next
// one, so that a run allocates nothing. Not thread-safe: Operations calls it under its mutex.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "rueda/runtime/in_flight_names.h"
#include "rueda/runtime/operation.h"

namespace rueda::runtime {

struct PreparedStart {
  int64_t number = 0;
  const void* input = nullptr;
  void* output = nullptr;
  void* ready = nullptr;  // as in rueda_request
};

struct Prepared {
  Prepared(int64_t given, Tensor described)
      : number(given),
        tensor(std::move(described)),
        hash(NameView::hash_of(tensor.request.process_set, tensor.request.name)) {}

  const int64_t number;
  const Tensor tensor;                             // without addresses
  const size_t hash;                               // of its name and process set
  std::shared_ptr<Operation> operation = nullptr;  // of the last run
  InFlightNames::node_type name = {};              // empty while the name is in flight
  OperationsByHandle::node_type handle = {};       // empty while the last handle is not released

  [[nodiscard]] NameView view() const;
  // Makes the operation of the next run: that of the last one, if nobody else knows it any more, else a new
  // one. Returns the one that is replaced, which is to be destroyed without the lock.
  std::shared_ptr<Operation> renew(const PreparedStart& start);
  // Enters the operation under its name, which is not in flight, and under its handle.
  void enter(InFlightNames& names);
  void enter(OperationsByHandle& handles);
};

class PreparedTable {
 public:
  // Numbers begin here: a process never uses one twice.
  explicit PreparedTable(int64_t first) : first_(first) {}

  int64_t add(Tensor tensor);
  [[nodiscard]] Prepared* find(int64_t number) const;  // null: unknown, or taken out
  [[nodiscard]] std::shared_ptr<const Tensor> tensor(int64_t number) const;
  std::shared_ptr<Prepared> take(int64_t number);
  std::vector<std::shared_ptr<Prepared>> take_of(int32_t process_set);
  [[nodiscard]] int64_t next() const { return first_ + static_cast<int64_t>(all_.size()); }

 private:
  [[nodiscard]] bool is_known(int64_t number) const { return number >= first_ && number < next(); }
  [[nodiscard]] size_t place(int64_t number) const { return static_cast<size_t>(number - first_); }

  const int64_t first_;
  std::vector<std::shared_ptr<Prepared>> all_;  // [number - first_]; null: taken out
};

}  // namespace rueda::runtime
