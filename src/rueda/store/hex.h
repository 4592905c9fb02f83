// Bytes as lower-case hexadecimal digits, for file names, for key files, and for launchers whose
// values are words.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "rueda/base/bytes.h"
#include "rueda/base/status.h"

namespace rueda::store {

inline std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

inline Result<Bytes> from_hex(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  Bytes bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    if (digit(text[i]) < 0 || digit(text[i + 1]) < 0) break;
    bytes.push_back(static_cast<std::byte>(digit(text[i]) << 4 | digit(text[i + 1])));
  }
  if (2 * bytes.size() != text.size()) return Status(Code::kInvalidArgument, "the text is not hexadecimal");
  return bytes;
}

}  // namespace rueda::store
