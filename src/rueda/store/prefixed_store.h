// A store of which only the keys with one prefix are seen, and named without it. The views of an elastic job
// have one each, so that what ranks say in one view is not heard in another.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "rueda/store/store.h"

namespace rueda::store {

class PrefixedStore final : public Store {
 public:
  explicit PrefixedStore(std::unique_ptr<Store> whole) : whole_(std::move(whole)) {}
  void use(std::string prefix) { prefix_ = std::move(prefix); }  // "": all keys
  [[nodiscard]] Store& whole() { return *whole_; }

  Status set(std::string_view key, std::string_view value, Deadline deadline) override {
    return whole_->set(in(key), value, deadline);
  }
  Result<std::string> get(std::string_view key, Deadline deadline) override {
    return whole_->get(in(key), deadline);
  }
  Result<std::string> try_get(std::string_view key, Deadline deadline) override {
    return whole_->try_get(in(key), deadline);
  }
  Result<int64_t> add(std::string_view key, int64_t amount, Deadline deadline) override {
    return whole_->add(in(key), amount, deadline);
  }
  Result<std::string> compare_and_set(std::string_view key, std::string_view expected, std::string_view value,
                                      Deadline deadline) override {
    return whole_->compare_and_set(in(key), expected, value, deadline);
  }
  Result<std::string> get_shared(std::string_view key, Nanos age, Deadline deadline) override {
    return whole_->get_shared(in(key), age, deadline);
  }
  Result<std::string> try_get_shared(std::string_view key, Nanos age, Deadline deadline) override {
    return whole_->try_get_shared(in(key), age, deadline);
  }
  Status give(const TableEntry& entry, Deadline deadline) override {
    const std::string table = in(entry.table);
    return whole_->give({table, entry.rank, entry.value, entry.host_size}, deadline);
  }
  Status announce(const TableEntry& entry, Deadline deadline) override {
    const std::string table = in(entry.table);
    return whole_->announce({table, entry.rank, entry.value, entry.host_size}, deadline);
  }
  Status remove_prefix(std::string_view prefix, Deadline deadline) override {
    return whole_->remove_prefix(in(prefix), deadline);
  }
  void disconnect() override { whole_->disconnect(); }
  [[nodiscard]] std::string description() const override { return whole_->description(); }

 private:
  [[nodiscard]] std::string in(std::string_view key) const { return prefix_ + std::string(key); }

  std::unique_ptr<Store> whole_;
  std::string prefix_;
};

}  // namespace rueda::store
