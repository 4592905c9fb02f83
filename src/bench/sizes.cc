#include "bench/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>

namespace rueda::bench {
namespace {

constexpr int64_t kMaxBytes = int64_t{64} << 30;
constexpr int64_t kLeastRate = 1'000'000, kMostRate = 1'000'000'000'000'000'000,
                  kMostLinkRate = 400'000'000'000;  // that `tc` makes

struct Unit {
  std::string_view suffix;  // lower case
  double factor;
};
constexpr std::array<Unit, 11> kByteUnits = {{{"", 1},
                                              {"b", 1},
                                              {"kib", 1 << 10},
                                              {"mib", 1 << 20},
                                              {"gib", 1 << 30},
                                              {"k", 1 << 10},
                                              {"m", 1 << 20},
                                              {"g", 1 << 30},
                                              {"kb", 1e3},
                                              {"mb", 1e6},
                                              {"gb", 1e9}}};
constexpr std::array<Unit, 4> kRateUnits = {{{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}}};

// The number and its suffix, in lower case.
bool split(std::string_view text, double& number, std::string& suffix) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return false;
  suffix.assign(stop, text.data() + text.size());
  if (suffix.starts_with(' ')) suffix.erase(0, 1);
  std::ranges::transform(suffix, suffix.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  return true;
}

const Unit* find_unit(std::span<const Unit> units, std::string_view suffix) {
  const auto unit = std::ranges::find(units, suffix, &Unit::suffix);
  return unit == units.end() ? nullptr : &*unit;
}

}  // namespace

Result<int64_t> parse_bytes(std::string_view text) {
  double number = 0;
  std::string suffix;
  if (!split(text, number, suffix))
    return Status(Code::kInvalidArgument,
                  fmt::format("{} is not a size; write bytes with a unit, as in 64KiB", text));
  const Unit* unit = find_unit(kByteUnits, suffix);
  if (unit == nullptr)
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} has the unknown unit {}; use B, KiB, MiB, GiB, or KB, MB, GB for powers of ten", text,
                    text.substr(text.size() - suffix.size())));
  const double bytes = number * unit->factor;
  if (bytes < 1 || bytes > static_cast<double>(kMaxBytes) || bytes != std::floor(bytes))
    return Status(Code::kInvalidArgument,
                  fmt::format("{} is out of range; give whole bytes from 1 B to 64 GiB", text));
  return static_cast<int64_t>(bytes);
}

Result<int64_t> parse_rate(std::string_view text) {
  double number = 0;
  std::string suffix;
  const bool is_split = split(text, number, suffix);
  const Unit* unit = is_split ? find_unit(kRateUnits, suffix) : nullptr;
  if (unit == nullptr)
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} is not a rate; write bits per second with a unit, as in 1gbit or 500mbit", text));
  const double bits = number * unit->factor;
  if (bits < static_cast<double>(kLeastRate) || bits > static_cast<double>(kMostRate))
    return Status(Code::kInvalidArgument,
                  fmt::format("{} is no rate of a link; give 1mbit to 1000000000gbit", text));
  return static_cast<int64_t>(bits);
}

Result<int64_t> parse_link_rate(std::string_view text) {
  Result<int64_t> rate = parse_rate(text);
  if (rate.is_ok() && rate.value() > kMostLinkRate)
    return Status(Code::kInvalidArgument,
                  fmt::format("a link of {} cannot be made; give a rate from 1mbit to 400gbit", text));
  return rate;
}

Result<std::vector<std::string>> parse_words(std::string_view text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin)
      return Status(
          Code::kInvalidArgument,
          fmt::format("the list \"{}\" has an empty entry; separate entries with single commas", text));
    words.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

Result<std::vector<int64_t>> parse_sizes(std::string_view text) {
  const Result<std::vector<std::string>> words = parse_words(text);
  if (!words.is_ok()) return words.status();
  std::vector<int64_t> sizes;
  for (const std::string& word : words.value()) {
    const Result<int64_t> size = parse_bytes(word);
    if (!size.is_ok()) return size.status();
    sizes.push_back(size.value());
  }
  return sizes;
}

Result<std::vector<int>> parse_counts(std::string_view text, int least, int most) {
  const Result<std::vector<std::string>> words = parse_words(text);
  if (!words.is_ok()) return words.status();
  std::vector<int> counts;
  for (const std::string& word : words.value()) {
    int count = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), count);
    if (error != std::errc() || stop != word.data() + word.size() || count < least || count > most)
      return Status(Code::kInvalidArgument,
                    fmt::format("{} is not a valid number of ranks; give {} to {}", word, least, most));
    counts.push_back(count);
  }
  return counts;
}

int ServerCount::of(int all) const {
  if (ranks == 0) return servers;
  const auto rounded = (int64_t{2} * all * servers + ranks) / (int64_t{2} * ranks);
  return static_cast<int>(std::max<int64_t>(rounded, 1));
}

Result<std::vector<ServerCount>> parse_servers(std::string_view text, int most) {
  const Result<std::vector<std::string>> words = parse_words(text);
  if (!words.is_ok()) return words.status();
  std::vector<ServerCount> counts;
  for (const std::string& word : words.value()) {
    ServerCount count;
    const char* const end = word.data() + word.size();
    auto [stop, error] = std::from_chars(word.data(), end, count.servers);
    bool is_right = error == std::errc() && count.servers >= 1 && count.servers <= most;
    count.ranks = 0;
    if (is_right && stop != end) {
      const auto ratio =
          *stop == ':' ? std::from_chars(stop + 1, end, count.ranks) : std::from_chars_result{};
      is_right = ratio.ptr == end && ratio.ec == std::errc() && count.ranks >= count.servers;
    }
    if (!is_right)
      return Status(
          Code::kInvalidArgument,
          fmt::format("{} is no number of servers; give 1 to {}, or a ratio of servers to ranks of at "
                      "most 1:1, such as 1:4",
                      word, most));
    counts.push_back(count);
  }
  return counts;
}

std::string size_text(int64_t bytes) {
  for (const auto& [shift, unit] : {std::pair(30, "GiB"), std::pair(20, "MiB"), std::pair(10, "KiB")})
    if (bytes >= (int64_t{1} << shift) && bytes % (int64_t{1} << shift) == 0)
      return fmt::format("{} {}", bytes >> shift, unit);
  return fmt::format("{} B", bytes);
}

std::string rate_text(int64_t bits_per_s) {
  const double mega = static_cast<double>(bits_per_s) / 1e6;
  return mega >= 1000 ? fmt::format("{:g} Gbit/s", mega / 1000) : fmt::format("{:g} Mbit/s", mega);
}

}  // namespace rueda::bench
