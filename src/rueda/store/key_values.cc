#include "rueda/store/key_values.h"

#include <charconv>

namespace rueda::store {

Status check_key(std::string_view key) {
  if (!key.empty() && key.size() <= kMaxStoreKeyBytes) return Status::ok();
  return {Code::kInvalidArgument, "a store key has 1 to " + std::to_string(kMaxStoreKeyBytes) +
                                      " bytes, this one has " + std::to_string(key.size())};
}

Status check_value(std::string_view key, std::string_view value) {
  if (Status status = check_key(key); !status.is_ok()) return status;
  if (value.size() <= kMaxStoreValueBytes) return Status::ok();
  return {Code::kInvalidArgument, "the value of store key '" + std::string(key) + "' has " +
                                      std::to_string(value.size()) + " bytes, at most " +
                                      std::to_string(kMaxStoreValueBytes) + " are allowed"};
}

Status check_both(std::string_view key, std::string_view expected, std::string_view value) {
  if (Status status = check_value(key, value); !status.is_ok()) return status;
  if (expected.size() + value.size() <= kMaxStoreValueBytes) return Status::ok();
  return {Code::kInvalidArgument, "the two values of store key '" + std::string(key) + "' have " +
                                      std::to_string(expected.size() + value.size()) + " bytes, at most " +
                                      std::to_string(kMaxStoreValueBytes) + " are allowed"};
}

Status key_timeout(std::string_view key, std::string_view where) {
  return {Code::kTimeout,
          "key '" + std::string(key) + "' did not appear in the store at " + std::string(where) +
              " in time; the rank that sets it is late or has ended (RUEDA_START_TIMEOUT gives it "
              "longer)"};
}

Status key_absent(std::string_view key, std::string_view where) {
  return {Code::kUnavailable,
          "key '" + std::string(key) + "' is not yet in the store at " + std::string(where)};
}

Result<int64_t> add_to_text(std::string_view key, const std::optional<std::string>& text, int64_t amount) {
  int64_t value = 0;
  if (text) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size())
      return Status(Code::kInvalidArgument, "store key '" + std::string(key) +
                                                "' does not hold a number, so nothing can be added to it");
  }
  if (__builtin_add_overflow(value, amount, &value))
    return Status(Code::kInvalidArgument, "adding " + std::to_string(amount) + " to store key '" +
                                              std::string(key) + "' overflows 64 bits");
  return value;
}

Status KeyValues::set(std::string_view key, std::string_view value) {
  if (Status status = check_value(key, value); !status.is_ok()) return status;
  const auto old = values_.find(key);
  const size_t freed = old == values_.end() ? 0 : key.size() + old->second.size();
  const size_t bytes = bytes_ - freed + key.size() + value.size();
  if (bytes > kMaxStoreBytes)
    return {Code::kUnavailable, "the store is full: key '" + std::string(key) + "' would take it over " +
                                    std::to_string(kMaxStoreBytes) + " bytes"};
  bytes_ = bytes;
  if (old == values_.end())
    values_.emplace(key, value);
  else
    old->second = value;
  return Status::ok();
}

const std::string* KeyValues::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Result<std::string> KeyValues::compare_and_set(std::string_view key, std::string_view expected,
                                               std::string_view value) {
  if (Status status = check_both(key, expected, value); !status.is_ok()) return status;
  const std::string* const old = find(key);
  if ((old == nullptr ? std::string_view() : std::string_view(*old)) != expected)
    return old == nullptr ? std::string() : *old;
  if (Status status = set(key, value); !status.is_ok()) return status;
  return std::string(value);
}

Result<int64_t> KeyValues::add(std::string_view key, int64_t amount) {
  const std::string* text = find(key);
  Result<int64_t> sum =
      add_to_text(key, text == nullptr ? std::nullopt : std::optional<std::string>(*text), amount);
  if (!sum.is_ok()) return sum;
  if (Status status = set(key, std::to_string(sum.value())); !status.is_ok()) return status;
  return sum;
}

void KeyValues::remove_prefix(std::string_view prefix) {
  for (auto at = values_.lower_bound(prefix); at != values_.end() && at->first.starts_with(prefix);) {
    bytes_ -= at->first.size() + at->second.size();
    at = values_.erase(at);
  }
}

}  // namespace rueda::store
