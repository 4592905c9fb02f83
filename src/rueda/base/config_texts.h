// How the table of settings reads texts that have a form: numbers, lists, and one word of several. A setting
// is kept as other parts read it: in lower case, without blanks. Pure.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "rueda/base/config.h"

namespace rueda {

std::string lower(std::string_view text);
std::string_view trimmed(std::string_view text);

// Parses the whole text as one number. Integer types accept no fraction.
template <class T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "1/true/yes/on" and "0/false/no/off" in any letter case.
Result<bool> parse_boolean(std::string_view text);

// `want` says what is allowed; the table puts variable, value and range into the sentence.
inline Status refused(const std::string& want) { return {Code::kInvalidArgument, want}; }

// Refuses names that promise Perfetto's own format: what a job writes is Chrome's JSON.
Status check_timeline_path(std::string_view path);
Status parse_timeline(Config& config, std::string_view text);
Status parse_log_level(Config& config, std::string_view text);
Status parse_determinism(Config& config, std::string_view text);
Status parse_wire(Config& config, std::string_view text);
Status parse_gpu_operations(Config& config, std::string_view text);
Status parse_cuda_ipc(Config& config, std::string_view text);
Status parse_tune(Config& config, std::string_view text);
Status parse_cpu_operations(Config& config, std::string_view text);
Status parse_transports(Config& config, std::string_view text);
// Entry i is the core of local rank i.
Status parse_thread_affinity(Config& config, std::string_view text);

}  // namespace rueda
