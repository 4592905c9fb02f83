// Every parser of bytes that come from another process or from a file, for fuzzing:
// tests/fuzz/parsers_test.cc gives each of them inputs that were changed at random, and tools/fuzz.py runs
// them under libFuzzer.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/bytes.h"

namespace rueda::fuzz {

using Input = std::span<const std::byte>;

struct Parser {
  std::string name;
  // Takes any bytes. Ends the process if something holds that must not.
  std::function<void(Input)> take;
  std::vector<Bytes> seeds;  // well-formed inputs
};

std::vector<Parser> core_parsers();
std::vector<Parser> launch_parsers();
std::vector<Parser> command_parsers();  // needs rueda_command_parsers
std::vector<Parser> together(std::initializer_list<std::vector<Parser>> some);

// Ends the process with the sentence if this does not hold.
void require(bool holds, std::string_view what);

inline Bytes bytes_of(std::string_view text) {
  const std::span<const char> chars(text);
  const auto bytes = std::as_bytes(chars);
  return {bytes.begin(), bytes.end()};
}
inline std::string_view text_of(Input bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline constexpr auto kEncode = [](const auto& value) { return encode(value); };

// What is accepted can be encoded, and means the same then.
template <class Decode, class Encode>
std::function<void(Input)> round_trip(Decode decode, Encode encode) {
  return [decode, encode](Input input) {
    const auto first = decode(input);
    if (!first.is_ok()) return require(!first.status().why.empty(), "a refusal says why");
    const Bytes again = encode(first.value());
    const auto second = decode(Input(again));
    require(second.is_ok(), "what was accepted is accepted when it is encoded again");
    require(encode(second.value()) == again, "what was accepted means the same when it is encoded again");
  };
}

// A parser of text that must only survive, and say why it refuses.
template <class Parse>
std::function<void(Input)> of_text(Parse parse) {
  return [parse](Input input) {
    const auto parsed = parse(text_of(input));
    if (!parsed.is_ok()) require(!parsed.status().why.empty(), "a refusal says why");
  };
}

}  // namespace rueda::fuzz
