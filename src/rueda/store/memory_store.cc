#include <chrono>
#include <condition_variable>
#include <mutex>

#include "rueda/store/key_values.h"
#include "rueda/store/store.h"

namespace rueda::store {
namespace {

// Any thread, because tests let one thread wait for a key that another one sets.
class MemoryStore final : public Store {
 public:
  Status set(std::string_view key, std::string_view value, Deadline) override {
    const std::scoped_lock lock(mutex_);
    const Status status = values_.set(key, value);
    changed_.notify_all();
    return status;
  }

  Result<std::string> get(std::string_view key, Deadline deadline) override {
    if (Status status = check_key(key); !status.is_ok()) return status;
    std::unique_lock lock(mutex_);
    const std::string* value = nullptr;
    const auto is_there = [&] { return (value = values_.find(key)) != nullptr; };
    if (!changed_.wait_for(lock, std::chrono::milliseconds(deadline.timeout_ms()), is_there))
      return key_timeout(key, description());
    return *value;
  }

  Result<std::string> try_get(std::string_view key, Deadline) override {
    if (Status status = check_key(key); !status.is_ok()) return status;
    const std::scoped_lock lock(mutex_);
    const std::string* value = values_.find(key);
    if (value == nullptr) return key_absent(key, description());
    return *value;
  }

  Result<int64_t> add(std::string_view key, int64_t amount, Deadline) override {
    const std::scoped_lock lock(mutex_);
    const Result<int64_t> sum = values_.add(key, amount);
    changed_.notify_all();
    return sum;
  }

  Result<std::string> compare_and_set(std::string_view key, std::string_view expected, std::string_view value,
                                      Deadline) override {
    const std::scoped_lock lock(mutex_);
    Result<std::string> now = values_.compare_and_set(key, expected, value);
    changed_.notify_all();
    return now;
  }

  Status remove_prefix(std::string_view prefix, Deadline) override {
    const std::scoped_lock lock(mutex_);
    values_.remove_prefix(prefix);
    return Status::ok();
  }

  [[nodiscard]] std::string description() const override { return "memory of this process"; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  KeyValues values_;
};

}  // namespace

std::unique_ptr<Store> make_memory_store() { return std::make_unique<MemoryStore>(); }

}  // namespace rueda::store
