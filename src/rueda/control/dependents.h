// Operations that all their ranks have submitted, and that wait until an earlier operation of another process
// set is ordered: the two share memory on some rank, and all ranks that take part in both submitted the other
// one first. Ordered so, the result is that of the earlier one and then the later one. Pure. Part of the
// coordinator.
//
// No operation waits for itself, neither directly nor through others: one that would close such a circle is
// not held back. So every wait here ends when some rank submits a tensor that is still missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "rueda/control/pending.h"
#include "rueda/control/tensor.h"

namespace rueda::control {

// Tensors that have left the table of their process set, and what becomes ready with them.
struct Complete {
  int32_t process_set = 0;
  Finished finished;
  Unit unit;
};

class Dependents {
 public:
  [[nodiscard]] bool is_empty() const { return waiting_.empty(); }
  [[nodiscard]] size_t size() const { return waiting_.size(); }
  // The tensor that waits here under this name, or null.
  [[nodiscard]] const PendingTensor* find(const NameInSet& name) const;
  // The tensors of a process set that wait here.
  [[nodiscard]] std::vector<const PendingTensor*> of_set(int32_t process_set) const;

  // Keeps `dependent` until the tensors with these ids are ordered, and returns true. If there are none to
  // wait for, it returns false and leaves `dependent` to the caller.
  bool take(Complete& dependent, std::set<uint64_t> after);
  // These tensors are ordered or have failed. Returns what follows now, in this order.
  std::vector<Complete> after(const Finished& ordered);
  // Everything of a process set, because it is removed.
  std::vector<std::unique_ptr<PendingTensor>> take_all(int32_t process_set);

 private:
  struct Waiting {
    Complete dependent;
    std::set<uint64_t> after;  // never empty
  };
  [[nodiscard]] bool waits_for(uint64_t tensor, const Finished& others) const;

  std::list<Waiting> waiting_;  // in the order in which they were complete
};

}  // namespace rueda::control
