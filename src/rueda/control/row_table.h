// How many rows each member gives or gets; in an alltoall, each to each other. Copies share one table,
// because a response, the plan that is made of it and its calls need the same n * n numbers. Immutable; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace rueda::control {

class RowTable {
 public:
  using value_type = int64_t;
  using iterator = const int64_t*;
  using const_iterator = iterator;
  using const_reference = const int64_t&;

  RowTable() = default;
  RowTable(std::vector<int64_t> rows)  // NOLINT(google-explicit-constructor): a table is its rows
      : rows_(rows.empty() ? nullptr : std::make_shared<const std::vector<int64_t>>(std::move(rows))) {}
  RowTable(std::initializer_list<int64_t> rows) : RowTable(std::vector<int64_t>(rows)) {}

  [[nodiscard]] bool empty() const { return rows_ == nullptr; }
  [[nodiscard]] size_t size() const { return empty() ? 0 : rows_->size(); }
  [[nodiscard]] const int64_t& operator[](size_t at) const { return (*rows_)[at]; }
  [[nodiscard]] const_iterator begin() const { return empty() ? nullptr : rows_->data(); }
  [[nodiscard]] const_iterator end() const { return begin() + size(); }
  [[nodiscard]] const std::vector<int64_t>& list() const {
    static const std::vector<int64_t> kNone;
    return empty() ? kNone : *rows_;
  }
  bool operator==(const RowTable& other) const { return rows_ == other.rows_ || list() == other.list(); }

 private:
  std::shared_ptr<const std::vector<int64_t>> rows_;  // null: there are none
};

}  // namespace rueda::control
