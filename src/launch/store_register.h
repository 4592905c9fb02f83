// The register of an elastic job's views in the store that its launcher serves.
#pragma once

#include <memory>
#include <utility>

#include "rueda/membership/keys.h"
#include "rueda/membership/register.h"
#include "rueda/store/store.h"

namespace rueda::launch {

// One thread.
class StoreRegister final : public membership::Register {
 public:
  explicit StoreRegister(std::unique_ptr<store::Store> store) : store_(std::move(store)) {}

  Result<membership::View> propose(const membership::View& next) override {
    const Bytes raw = membership::encode(next);
    const std::string_view text(reinterpret_cast<const char*>(raw.data()), raw.size());
    const Result<std::string> decided =
        store_->compare_and_set(membership::view_key(next.number), "", text, Deadline::after(kAnswerTime));
    if (!decided.is_ok()) return decided.status();
    return membership::decode_view(std::as_bytes(std::span(decided.value())));
  }

 private:
  static constexpr Nanos kAnswerTime = 5 * kSecond;  // its server is a thread of this process
  std::unique_ptr<store::Store> store_;
};

}  // namespace rueda::launch
