// Fixed-layout little-endian encoding for everything that crosses a wire. A reader never reads past its span.
// After the first field that is too short or too long it has failed, and returns zeros and empty strings; one
// check of is_ok() at the end is enough.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace rueda {

using Bytes = std::vector<std::byte>;

class ByteWriter {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void put(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));  // x86-64 and AArch64 are little-endian
  }
  void put_string(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    put_raw(std::as_bytes(std::span(text.data(), text.size())));
  }
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void put_vector(const std::vector<T>& values) {
    put(static_cast<uint32_t>(values.size()));
    put_raw(std::as_bytes(std::span(values)));
  }
  // put_item(writer, item) writes one item: at least one byte.
  template <class Items, class Put>
  void put_list(const Items& items, const Put& put_item) {
    put(static_cast<uint32_t>(items.size()));
    for (const auto& item : items) put_item(*this, item);
  }
  void put_raw(std::span<const std::byte> raw) { bytes_.insert(bytes_.end(), raw.begin(), raw.end()); }

  [[nodiscard]] const Bytes& bytes() const { return bytes_; }
  [[nodiscard]] Bytes take() && { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T> T get() {
    T value{};
    if (std::span<const std::byte> raw = get_raw(sizeof(T)); !raw.empty())
      std::memcpy(&value, raw.data(), sizeof(T));
    return value;
  }
  // max limits how much memory a hostile peer can make us allocate.
  std::string get_string(size_t max) {
    const auto size = get<uint32_t>();
    if (size > max) return fail(), std::string();
    const std::span<const std::byte> raw = get_raw(size);
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T> std::vector<T> get_vector(size_t max) {
    const auto size = get<uint32_t>();
    if (size > max || size * sizeof(T) > rest_.size()) return fail(), std::vector<T>();
    std::vector<T> values(size);
    const std::span<const std::byte> raw = get_raw(size * sizeof(T));
    if (!raw.empty()) std::memcpy(values.data(), raw.data(), raw.size());
    return values;
  }
  // get_item(reader) reads one item. An item takes at least one byte, so a list that announces more items
  // than bytes are left is refused, and nothing is allocated before its item has been read.
  template <class Get>
  auto get_list(size_t max, const Get& get_item) {
    std::vector<decltype(get_item(*this))> items;
    const auto count = get<uint32_t>();
    if (count > max || count > rest_.size()) return fail(), items;
    while (is_ok_ && items.size() < count) items.push_back(get_item(*this));
    return items;
  }
  // A list that only the length of the payload limits.
  template <class Get>
  auto get_list(const Get& get_item) {
    return get_list(rest_.size(), get_item);
  }
  // Empty if size is 0, or if fewer than size bytes are left; in that case the reader has failed.
  std::span<const std::byte> get_raw(size_t size) {
    if (size > rest_.size()) return fail(), std::span<const std::byte>();
    const std::span<const std::byte> raw = rest_.first(size);
    rest_ = rest_.subspan(size);
    return raw;
  }

  [[nodiscard]] bool is_ok() const { return is_ok_; }
  [[nodiscard]] bool is_at_end() const { return rest_.empty(); }
  void fail() {
    is_ok_ = false;
    rest_ = {};
  }

 private:
  std::span<const std::byte> rest_;
  bool is_ok_ = true;
};

}  // namespace rueda
